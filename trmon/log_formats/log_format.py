"""What a reader of a log format is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

from trmon.domain.analysis.logged_steps import LogDefect, LogRow

LogItem: TypeAlias = LogRow | LogDefect


@dataclass(frozen=True, slots=True)
class LogSample:
    """The path of a file or folder and the first 64 KiB of a file, to recognise its format by."""

    path: Path
    data: bytes

    @property
    def head(self) -> str:
        """The first 64 KiB as text."""
        return self.data.decode("utf-8-sig", errors="replace")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """A format: its name, what it is for a reader of the documentation, and how to recognise and read it.

    `read` yields rows and defects in the order of the file, and raises InvalidInput for a file without rows to read.
    `files` are those that a log consists of; `has_lines` if rows are appended as lines, whose last may be cut off.
    """

    name: str
    description: str
    matches: Callable[[LogSample], bool]
    read: Callable[[Path], Iterator[LogItem]]
    files: Callable[[Path], Sequence[Path]] = lambda path: [path]
    has_lines: bool = True


def in_file(file: Path, items: Iterable[LogItem], *, log: Path) -> Iterator[LogItem]:
    """Yield what was read from a file of a log; its defects name the file if it is not the log itself."""
    for item in items:
        if isinstance(item, LogDefect) and file != log:
            yield replace(item, reason=f"{file.name} {item.reason}")
        else:
            yield item
