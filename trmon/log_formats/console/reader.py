"""Reads the console output of a trainer: lines that carry metrics, among lines that do not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from trmon.log_formats.console.bullet_list import BulletList
from trmon.log_formats.console.dictionary import Dictionaries
from trmon.log_formats.console.metric_grid import MetricGrid
from trmon.log_formats.console.piped_fields import PipedFields
from trmon.log_formats.console.step_pairs import StepPairs
from trmon.log_formats.log_format import LogFormat, LogRow

_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")


def read_console(lines: Iterator[str]) -> Iterator[LogRow]:
    """Yield the metrics of the lines of a console; progress bars may share a line with them."""
    shapes = (StepPairs(), Dictionaries(), PipedFields(), BulletList(), MetricGrid())
    for line in lines:
        for part in _ANSI.sub("", line).replace("\r", "\n").splitlines():
            for shape in shapes:
                yield from shape.add_line(part)
    for shape in shapes:
        yield from shape.finish()


def _read(path: Path) -> Iterator[LogRow]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as file:
        yield from read_console(file)


CONSOLE = LogFormat(
    name="console",
    description="the console output of a trainer",
    matches=lambda sample: "\x00" not in sample.head and bool(sample.head.strip()),
    read=_read,
)
