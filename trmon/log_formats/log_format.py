"""What a reader of a log format is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

LogRow: TypeAlias = Mapping[str, Any]
"""The metrics of one line of a log under the framework's names, with its step under one of the names of a step."""


@dataclass(frozen=True, slots=True)
class LogSample:
    """The path of a file or folder and the first 64 KiB of a file, to recognise its format by."""

    path: Path
    head: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFormat:
    """A format: its name, what it is for a reader of the documentation, and how to recognise and read it.

    `read` yields rows in the order of the file and raises InvalidInput, with the line, where the file is malformed.
    """

    name: str
    description: str
    matches: Callable[[LogSample], bool]
    read: Callable[[Path], Iterator[LogRow]]
