"""HTML elements whose text and attributes are escaped: names of runs and notes are text, never markup."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TypeAlias
from xml.etree.ElementTree import Element, tostring

Child: TypeAlias = "Element | str | None"


def element(tag: str, *children: Child, **attributes: object) -> Element:
    """Return an element; None leaves a child or an attribute out, `class_` and `for_` are attributes of that name."""
    made = Element(tag, {_attribute(name): str(value) for name, value in attributes.items() if value is not None})
    for child in children:
        if isinstance(child, str):
            _append_text(made, child)
        elif child is not None:
            made.append(child)
    return made


def time_element(at: float) -> Element:
    """Return a time in UTC, with its zone."""
    moment = datetime.fromtimestamp(at, tz=timezone.utc)
    return element("time", f"{moment:%Y-%m-%d %H:%M:%S} UTC", datetime=moment.isoformat(timespec="seconds"))


def table(head: Iterable[str], rows: Iterable[Iterable[Child]]) -> Element:
    """Return a table."""
    cells = element("tr", *(element("th", name, scope="col") for name in head))
    body = element("tbody", *(element("tr", *(element("td", cell) for cell in row)) for row in rows))
    return element("div", element("table", element("thead", cells), body), class_="scroll")


def document(title: str, *children: Child, style: str) -> bytes:
    """Return a complete page, which loads nothing and runs nothing."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", **{"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", style),
    )
    page = element("html", head, element("body", element("main", *children)), lang="en")
    markup: str = tostring(page, encoding="unicode", method="html")
    return f"<!doctype html>\n{markup}\n".encode()


def _append_text(made: Element, text: str) -> None:
    if len(made):
        made[-1].tail = (made[-1].tail or "") + text
    else:
        made.text = (made.text or "") + text


def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-") if name != "viewBox" else name
