"""HTML elements, whose text and attributes are escaped, and signals over steps as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from itertools import groupby
from typing import Any, TypeAlias
from xml.etree.ElementTree import Element, tostring

from trmon.domain.findings.story import spans_decades

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


WIDTH, HEIGHT = 520, 150
LEFT, RIGHT, TOP, BOTTOM = 64, 8, 8, 20


def chart(
    title: str, unit: str, *, steps: Sequence[int], values: Sequence[float], marks: Sequence[tuple[int, str]]
) -> Element | None:
    """Return a figure with the chart of a signal and its caption; None without a known value.

    Args: values: by step, NaN if unknown; marks: steps with what began there.
    """
    known = [value for value in values if math.isfinite(value)]
    if not known or len(steps) < 2:
        return None
    newest = f"newest {number(known[-1])}"
    caption = element("figcaption", element("strong", title), (f", {unit}" if unit else "") + f": {newest}")
    # For those who do not see the chart.
    ends = f"from {number(min(known))} to {number(max(known))}, {newest}" + (f" {unit}" if unit else "")
    began = "".join(f"; {what} at step {step}" for step, what in marks)
    label = f"{title} over steps {steps[0]} to {steps[-1]}: {ends}{began}"
    return element("figure", caption, _drawing(steps, values, known, marks=marks, label=label))


def number(value: float) -> str:
    """Return a number in four digits."""
    return f"{value:.4g}"


def _drawing(
    steps: Sequence[int],
    values: Sequence[float],
    known: Sequence[float],
    *,
    marks: Sequence[tuple[int, str]],
    label: str,
) -> Element:
    least, most = min(known), max(known)
    is_log = spans_decades(least, most)
    scale = math.log10 if is_log else float
    low, high = scale(least), scale(most)
    first, last = steps[0], steps[-1]

    def x(step: float) -> float:
        return round(LEFT + (step - first) / (last - first) * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        share = 0.5 if high == low else (scale(value) - low) / (high - low)
        return round(TOP + (1 - share) * (HEIGHT - TOP - BOTTOM), 1)

    lines = [_path(points) for points in _runs(steps, values, x, y)]
    ends = [least] if least == most else [least, most]
    labels = [_text(LEFT - 6, y(value) + 4, number(value), anchor="end") for value in ends]
    axis = [
        element("line", class_="axis", x1=LEFT, x2=WIDTH - RIGHT, y1=HEIGHT - BOTTOM, y2=HEIGHT - BOTTOM),
        _text(LEFT, HEIGHT - 5, f"step {first}{', logarithmic' if is_log else ''}"),
        _text(WIDTH - RIGHT, HEIGHT - 5, str(last), anchor="end"),
    ]
    drawn = [part for step, what in marks if first <= step <= last for part in _mark(x(step), f"{what} {step}")]
    return element("svg", *axis, *labels, *lines, *drawn, viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_label=label)


def _runs(steps: Sequence[int], values: Sequence[float], x: Any, y: Any) -> Iterator[list[tuple[float, float]]]:
    """Yield the points of each stretch of known values."""
    for is_known, group in groupby(zip(steps, values, strict=True), key=lambda point: math.isfinite(point[1])):
        if is_known:
            yield [(x(step), y(value)) for step, value in group]


def _path(points: Sequence[tuple[float, float]]) -> Element:
    if len(points) == 1:
        [(at, height)] = points
        return element("circle", cx=at, cy=height, r=2, class_="dot")
    return element("polyline", class_="course", points=" ".join(f"{at},{height}" for at, height in points))


def _mark(at: float, what: str) -> list[Element]:
    is_late = at > WIDTH * 0.7
    label = _text(at - 4 if is_late else at + 4, TOP + 8, what, anchor="end" if is_late else "start")
    return [element("line", class_="mark", x1=at, x2=at, y1=TOP, y2=HEIGHT - BOTTOM), label]


def _text(at: float, height: float, text: str, *, anchor: str = "start") -> Element:
    return element("text", text, x=at, y=height, text_anchor=anchor)
