"""Console output of trainers: the rows among all lines, with who printed them and the newest progress bar before them.

Rows come in the order in which they begin in the file. A row states a step only if its own line or the words before it
do. A progress bar is no step: consoles buffer lines and bars separately, so a row has the count of the newest bar of
its writer beside it. Bars with a description count only if it begins like `Training` or `Epoch`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from trmon.domain.analysis.logged_steps import LogRow
from trmon.domain.errors import InvalidInput
from trmon.logs.console_dictionaries import Dictionaries
from trmon.logs.console_lines import BulletList, FieldLines, LineShape, MetricGrid, StepPairs
from trmon.logs.log_format import LogFormat, LogItem
from trmon.logs.markdown import MarkdownTables, has_table, tables_found

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
_RAY_PREFIX = re.compile(r"\s*\(([^()\s][^()]*? pid=\d+(?:, ip=[^()\s]+)?)\) ?")
_REPEATED = re.compile(r" \[repeated \d+x across cluster\].*$")
"""What Ray adds to a line that several processes printed."""
_BAR = re.compile(r"(?:^|\])(?P<description>[^\]|{}]*?)\d{1,3}%\|[^|]*\| *(?P<count>\d+)/\d+ \[")
_TRAINING = re.compile(
    r"(?:global |current )?(?:train(?!\w* (?:data|set|split))|epoch|episode|steps?\b|iter|update|progress|grpo|ppo|$)",
    re.IGNORECASE,
)
PATIENCE_LINES = 200
"""After so many lines of others a process does not continue a row any more; the rows that wait for it come out."""


class _Process:
    """The shapes of lines that one process prints; processes may print between the lines of each other."""

    def __init__(self, writer: str) -> None:
        self.pairs = StepPairs()
        self.tables = MarkdownTables()
        self.newest_line = 0
        self._writer = writer
        self._bar: int | None = None
        self._shapes: tuple[LineShape, ...] = (
            self.pairs,
            Dictionaries(),
            FieldLines(),
            BulletList(),
            MetricGrid(),
            self.tables,
        )

    @property
    def begin(self) -> int | None:
        """The line at which its oldest open row begins."""
        return min((shape.begin for shape in self._shapes if shape.begin is not None), default=None)

    def add_line(self, line: str, number: int) -> Iterator[LogItem]:
        self.newest_line = number
        before, brace, after = line.partition("{") if "%|" in line else (line, "", "")
        self._note_bar(before)
        for shape in self._shapes:
            yield from map(self._item, shape.add_line(line, number))
        if brace:
            self._note_bar(after.rpartition("}")[2])

    def finish(self) -> Iterator[LogItem]:
        for shape in self._shapes:
            yield from map(self._item, shape.finish())

    def _item(self, item: LogItem) -> LogItem:
        return replace(item, writer=self._writer, bar=self._bar) if isinstance(item, LogRow) else item

    def _note_bar(self, text: str) -> None:
        for bar in _BAR.finditer(text) if "%|" in text else ():
            if _TRAINING.match(bar["description"].strip(" :\t")):
                self._bar = int(bar["count"])


class Console:
    """The processes that print on a console, and the rows that wait for older ones to end."""

    def __init__(self) -> None:
        self.n_rows = 0
        self.n_lines = 0
        self._processes: dict[str, _Process] = {}
        self._former = ""
        self._waiting: list[LogItem] = []

    @property
    def n_refused_tables(self) -> int:
        """How many tables in the lines are none of metrics."""
        return sum(process.tables.n_refused for process in self._processes.values())

    def read(self, lines: Iterable[str]) -> Iterator[LogItem]:
        """Yield the rows and defects of the lines, in the order in which they begin."""
        for self.n_lines, line in enumerate(lines, start=1):
            for part in _ESCAPE.sub("", line).replace("\r", "\n").splitlines():
                yield from self._counted(self._add_line(part, self.n_lines))
        self._waiting += chain.from_iterable(process.finish() for process in self._processes.values())
        yield from self._counted(sorted(self._waiting, key=_line_of))

    def _counted(self, items: Iterable[LogItem]) -> Iterator[LogItem]:
        for item in items:
            self.n_rows += isinstance(item, LogRow)
            yield item

    def _add_line(self, line: str, number: int) -> Iterator[LogItem]:
        prefix = _RAY_PREFIX.match(line)
        text = _REPEATED.sub("", line[prefix.end() :]) if prefix else line
        if prefix is not None or not self._process(self._former).pairs.is_continued_by(text):
            self._former = prefix[1] if prefix else ""
        self._waiting += self._process(self._former).add_line(text, number)
        if self._waiting:
            for process in self._processes.values():
                if process.begin is not None and process.newest_line < number - PATIENCE_LINES:
                    self._waiting += process.finish()
            begins = [process.begin for process in self._processes.values() if process.begin is not None]
            oldest = min(begins, default=number + 1)
            self._waiting.sort(key=_line_of)
            while self._waiting and self._waiting[0].line <= oldest:
                yield self._waiting.pop(0)

    def _process(self, writer: str) -> _Process:
        if writer not in self._processes:
            self._processes[writer] = _Process(writer)
        return self._processes[writer]


def _line_of(item: LogItem) -> int:
    return item.line


def read_console(lines: Iterable[str]) -> Iterator[LogItem]:
    """Yield the metrics of the lines of a console; progress bars may share a line with them.

    Lines are assigned by Ray's prefix, such as `(TaskRunner pid=123) `, which is the writer of a row; the rest of a
    wrapped line has none.
    """
    return Console().read(lines)


READ_LINES = (
    "{'loss': 0.1, 'reward': 0.5}, step:1 - loss:0.1 - reward:0.5, Step 1 | Loss: 0.1 | Reward: 0.5, "
    "step=1 loss=0.1, and tables with a column of steps"
)


def _read(path: Path) -> Iterator[LogItem]:
    console = Console()
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        yield from console.read(file)
    if not console.n_rows:
        n = console.n_lines
        found = f"{n} {'line' if n == 1 else 'lines'} of text{tables_found(console.n_refused_tables)}"
        raise InvalidInput(str(path), f"has no row of metrics in {found}; lines such as these are read: {READ_LINES}")


CONSOLE = LogFormat(
    name="console",
    description="the console output of a trainer",
    matches=lambda sample: b"\x00" not in sample.data and bool(sample.head.strip()),
    read=_read,
)
MARKDOWN = LogFormat(
    name="markdown",
    description="a text with Markdown tables",
    matches=lambda sample: has_table(sample.head.splitlines()),
    read=_read,
)
