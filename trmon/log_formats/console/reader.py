"""Reads the console output of a trainer: lines that carry metrics, among lines that do not."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from trmon.log_formats.console.bullet_list import BulletList
from trmon.log_formats.console.dictionary import Dictionaries
from trmon.log_formats.console.metric_grid import MetricGrid
from trmon.log_formats.console.piped_fields import PipedFields
from trmon.log_formats.console.step_pairs import StepPairs
from trmon.log_formats.log_format import LogFormat, LogItem

_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
_RAY_PREFIX = re.compile(r"\s*\(([^()\s][^()]*? pid=\d+(?:, ip=[^()\s]+)?)\) ?")


class _Process:
    """The shapes of lines that one process prints; processes may print between the lines of each other."""

    def __init__(self) -> None:
        self.pairs = StepPairs()
        self._shapes = (self.pairs, Dictionaries(), PipedFields(), BulletList(), MetricGrid())

    def add_line(self, line: str, number: int) -> Iterator[LogItem]:
        for shape in self._shapes:
            yield from shape.add_line(line, number)

    def finish(self) -> Iterator[LogItem]:
        for shape in self._shapes:
            yield from shape.finish()


def read_console(lines: Iterator[str]) -> Iterator[LogItem]:
    """Yield the metrics of the lines of a console; progress bars may share a line with them.

    Lines are told apart by Ray's prefix, such as `(TaskRunner pid=123) `; the rest of a wrapped line has none.
    """
    processes: defaultdict[str, _Process] = defaultdict(_Process)
    former = ""
    for number, line in enumerate(lines, start=1):
        for part in _ESCAPE.sub("", line).replace("\r", "\n").splitlines():
            prefix = _RAY_PREFIX.match(part)
            text = part[prefix.end() :] if prefix else part
            if prefix is not None or not processes[former].pairs.is_continued_by(text):
                former = prefix[1] if prefix else ""
            yield from processes[former].add_line(text, number)
    for process in processes.values():
        yield from process.finish()


def _read(path: Path) -> Iterator[LogItem]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        yield from read_console(file)


CONSOLE = LogFormat(
    name="console",
    description="the console output of a trainer",
    matches=lambda sample: "\x00" not in sample.head and bool(sample.head.strip()),
    read=_read,
)
