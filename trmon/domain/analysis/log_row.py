"""What a reader of a log finds in it: rows of metrics, and places that cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LogRow:
    """The metrics of a row under the framework's names, with its step and its time if the log states them.

    `line` is where the row begins, from 1; 0 in a format without lines. `writer` names what wrote the row, such as a
    file that one process writes; empty if the log does not tell.
    """

    values: Mapping[str, Any]
    line: int = 0
    writer: str = ""


@dataclass(frozen=True, slots=True)
class LogDefect:
    """A place of a log that cannot be read, or not as it is written; `is_end` if the log was cut off there."""

    line: int
    reason: str
    is_end: bool = False

    def __str__(self) -> str:
        return f"line {self.line}: {self.reason}" if self.line else self.reason
