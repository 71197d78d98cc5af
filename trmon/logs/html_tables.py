"""Tables and preformatted texts of HTML pages, in the order of the page: notebooks show and export metrics as such."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import TypeAlias

from trmon.domain.errors import InvalidInput
from trmon.logs.console import read_console
from trmon.logs.log_format import LogFormat, LogItem, LogSample
from trmon.logs.markdown import tables_found
from trmon.logs.tables import is_metric_table, rows_of_table

STARTS = ("<!doctype html", "<html", "<table", "<div", "<style")
SUFFIXES = (".html", ".htm")


Table: TypeAlias = list[list[str]]
"""The cells of a table by line; the first line is its header."""
Part: TypeAlias = Table | str


class _Parser(HTMLParser):
    """Collects the parts of a page; the cells of a table in a cell are its own."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[Part] = []
        self._tables: list[Table] = []
        self._text: list[str] | None = None
        self._is_cell = False

    def handle_starttag(self, tag: str, _attributes: Sequence[tuple[str, str | None]], /) -> None:
        if tag == "table":
            self._tables.append([])
            self.parts.append(self._tables[-1])
        elif tag == "tr" and self._tables:
            self._end_cell()
            self._tables[-1].append([])
        elif tag in ("td", "th") and self._tables:
            self._end_cell()
            self._text, self._is_cell = [], True
        elif tag == "pre" and self._text is None:
            self._text, self._is_cell = [], False
        elif tag == "br" and self._text is not None:
            self._text.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr"):
            self._end_cell()
        elif tag == "table" and self._tables:
            self._end_cell()
            self._tables.pop()
        elif tag == "pre" and self._text is not None and not self._is_cell:
            self.parts.append("".join(self._text))
            self._text = None

    def handle_data(self, data: str) -> None:
        if self._text is not None:
            self._text.append(data)

    def _end_cell(self) -> None:
        if self._text is not None and self._is_cell and self._tables:
            lines = self._tables[-1]
            lines[-1:] = [[*(lines[-1] if lines else []), " ".join("".join(self._text).split())]]
            self._text, self._is_cell = None, False


def parts_of_html(text: str) -> list[Part]:
    """Return the tables and preformatted texts of a page, without lines that have no cells."""
    parser = _Parser()
    parser.feed(text)
    parser.close()
    return [part if isinstance(part, str) else [line for line in part if any(line)] for part in parser.parts]


def rows_of_parts(parts: Sequence[Part], *, path: Path) -> Iterator[LogItem]:
    """Yield the rows of the tables of metrics and of the texts; of the states of one table only the newest is read."""
    for i, part in enumerate(parts):
        if isinstance(part, str):
            yield from (replace(item, line=0) for item in read_console(part.splitlines()))
        elif (
            len(part) > 1
            and is_metric_table(part[0], part[1])
            # The newer state of a table that grows begins with all its lines.
            and not any(later[: len(part)] == part for later in parts[i + 1 :])
        ):
            yield from rows_of_table(part[0], ((0, line) for line in part[1:]), path=path)


def _read(path: Path) -> Iterator[LogItem]:
    parts = parts_of_html(path.read_text(encoding="utf-8-sig", errors="replace"))
    has_row = False
    for item in rows_of_parts(parts, path=path):
        has_row = True
        yield item
    if not has_row:
        n_tables = sum(isinstance(part, list) for part in parts)
        raise InvalidInput(str(path), f"is an HTML page{tables_found(n_tables) or ' without tables'}")


def _matches(sample: LogSample) -> bool:
    head = sample.head.lstrip()[:200].lower()
    return head.startswith(STARTS) or (sample.path.suffix.lower() in SUFFIXES and "<" in head)


HTML = LogFormat(
    name="html",
    description="an HTML page with tables of metrics (an exported notebook)",
    matches=_matches,
    read=_read,
    has_lines=False,
)
