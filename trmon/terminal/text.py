"""Text that is cut to a width."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from textwrap import TextWrapper

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from trmon.domain.health.judgement import VerdictKind, duration, verdict_words
from trmon.domain.severity import Severity
from trmon_client.api import RunStatus

ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


def cut_middle(text: str, width: int) -> str:
    """Return text of at most `width` characters, without its middle if it is longer: names differ at their ends."""
    if len(text) <= width:
        return text
    kept = max(width - len(ELLIPSIS), 0)
    tail = kept // 2
    return f"{text[: kept - tail]}{ELLIPSIS[:width]}{text[len(text) - tail :]}"


PIPE_WIDTH = 100_000
"""Columns of an output that is not a terminal: nothing of it is cut or wrapped."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def printable(text: str) -> str:
    """Return text with a replacement for each control or invisible character other than line ends."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t\xa0" else REPLACEMENT for c in text)


def printable_json(document: str) -> str:
    """Return JSON with an escape, which parsers read alike, for each control or invisible character."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in document)


class PrintableConsole(Console):
    """A console whose own colours and cursor movements are all that controls the terminal."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of a renderable, printable."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines as they are: without markup, highlighting or wrapping."""
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


WIDEST_TABLE = 250
"""Columns of a table that somebody still reads along, in a pipe too."""


def print_rows(console: Console, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table, or where there is no room for it a line a cell: no word is broken that fits on a line."""
    rows = list(rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(Text(head), no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    natural = console.measure(table, options=console.options.update(max_width=PIPE_WIDTH)).maximum
    if natural <= min(console.width, WIDEST_TABLE):
        console.print(table)
        return
    indent = max(map(len, heads)) + 2
    wrapper = TextWrapper(console.width, subsequent_indent=" " * indent)
    wrapper.wordsep_re = re.compile(rf"(\s+|(?=\S{{{max(console.width - indent, 1)},}})\S*?[-_/,:;}}]+)")
    for row in rows:
        for head, cell in zip(heads, row, strict=True):
            text = Text(wrapper.fill(f"{head.ljust(indent)}{cell}"))
            text.stylize("dim", end=len(head))
            console.print(text, soft_wrap=True)
        console.print()


OF_KIND = {
    VerdictKind.ACT.value: "bold red",
    VerdictKind.CRASHED.value: "bold",
    VerdictKind.STALLED.value: "bold",
    VerdictKind.WATCH.value: "yellow",
    VerdictKind.ENDED_ILL.value: "yellow",
    VerdictKind.OUTSIDE.value: "yellow",
    VerdictKind.LEARNT_NOTHING.value: "dim",
    VerdictKind.UNKNOWN.value: "dim",
    VerdictKind.TOO_FEW_ROWS.value: "dim",
    VerdictKind.NO_DRIFT_FOUND.value: "dim",
    VerdictKind.TRAINING_HEALTHY.value: "green",
    VerdictKind.HEALTHY.value: "green",
    VerdictKind.FINISHED.value: "dim",
}
OF_SEVERITY = {Severity.PAGE.value: "bold red", Severity.WARN.value: "yellow", Severity.INFO.value: "dim"}


def status_line(run: RunStatus) -> Text:
    """Return a run's verdict in one line, e.g. `Act: staleness since step 63`, with how far the judging is behind."""
    known = f" ({run.behind.words})" if run.behind else ""
    words = verdict_words(f"{kind_words(run.verdict.kind)}{known}", run.verdict.why)
    return Text(words, style=OF_KIND.get(run.verdict.kind, ""))


def kind_words(kind: str) -> str:
    """Return a kind of verdict in words, also one of a newer service."""
    return kind.replace("_", " ")


def last_seen_text(at: float | None, *, now: float) -> str:
    """Return how long ago a run reported."""
    return "never" if at is None else f"{duration(max(now - at, 0.0))} ago"


def percent_text(value: float | None) -> str:
    """Return a share as a percentage."""
    return "-" if value is None else f"{value:.0%}" if value == 0 or value >= 0.1 else f"{value:.1%}"


BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-=+*%#"
GAP = " "


def text_sparkline(values: Sequence[float | None], *, width: int, ascii_only: bool = False) -> str:
    """Return at most `width` bars between the least and the largest finite value; a gap where no value is known.

    The last bar is the newest value; a bar of several shows the last known one. Equal values are drawn in the middle.
    """
    bars = ASCII_BARS if ascii_only else BARS
    known = [
        next((value for value in reversed(part) if value is not None and math.isfinite(value)), None)
        for part in _parts(values, width)
    ]
    finite = [value for value in known if value is not None]
    if not finite:
        return GAP * len(known)
    low, span = min(finite), max(finite) - min(finite)
    return "".join(GAP if value is None else _bar(bars, value - low, span) for value in known)


def _parts(values: Sequence[float | None], width: int) -> list[Sequence[float | None]]:
    n = min(width, len(values))
    edges = [len(values) * i // n for i in range(n + 1)] if n else [0]
    return [values[begin:end] for begin, end in pairwise(edges)]


def _bar(bars: str, height: float, span: float) -> str:
    return bars[round(height / span * (len(bars) - 1))] if span > 0 else bars[len(bars) // 2 - 1]
