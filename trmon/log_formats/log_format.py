"""What a reader of a log format is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from trmon.domain.analysis.log_row import LogDefect, LogRow

LogItem: TypeAlias = LogRow | LogDefect


@dataclass(frozen=True, slots=True)
class LogSample:
    """The path of a file or folder and the first 64 KiB of a file, to recognise its format by."""

    path: Path
    head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """A format: its name, what it is for a reader of the documentation, and how to recognise and read it.

    `read` yields rows and defects in the order of the file, and raises InvalidInput for a file without rows to read.
    """

    name: str
    description: str
    matches: Callable[[LogSample], bool]
    read: Callable[[Path], Iterator[LogItem]]
