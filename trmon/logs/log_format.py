"""The interface of log readers, and their common parts: numbers, rows of steps, messages of Protobuf."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from trmon.domain.analysis.logged_steps import LogDefect, LogRow

LogItem: TypeAlias = LogRow | LogDefect
_WRAPPED = re.compile(r"^(?:np\.float\d*|numpy\.float\d*|np\.int\d*|float|tensor|array)\(([^(),]+)(?:,[^()]*)?\)$")
Fields: TypeAlias = Mapping[str, tuple[int, str]]
"""The number and the type of each field, such as `(1, "double")` or `(2, "repeated Item")`."""


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


def bare_number(text: str) -> str:
    """Return the number inside what a log wraps around one, such as np.float64(0.5); other text unchanged."""
    text = text.strip()
    found = _WRAPPED.match(text)
    return found.group(1) if found else text


NOT_LOGGED = ("", "-", "--", "–", "—", "none", "null", "n/a", "na", "<na>", "no log")
"""Texts, in lower case, of a metric that was not logged; NaN is a number."""
_NUMBER = re.compile(
    r"(?P<digits>[-+]?\d{1,3}(?:,\d{3})+(?:\.\d*)?|[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?P<unit>.*)"
)
UNITS = {"%": 0.01, "ms": 0.001, "k": 1e3, "K": 1e3}
"""The factors of units that change the number; other units are left out."""


def is_number(text: str) -> bool:
    """Whether a text is a number, NaN or infinity."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def number_text(text: str) -> str:
    """Return the number of a text that people read, such as `12.5%`, `1,024` or `73s`; other text unchanged."""
    text = bare_number(text)
    found = None if is_number(text) else _NUMBER.fullmatch(text)
    if found is None or not (found["unit"] in ("", "%") or found["unit"].isalpha()):
        return text
    digits = found["digits"].replace(",", "")
    return repr(float(digits) * UNITS[found["unit"]]) if found["unit"] in UNITS else digits


def logged(value: object) -> object:
    """Return the value of a metric, None for a text that says it was not logged."""
    return None if isinstance(value, str) and value.strip().lower() in NOT_LOGGED else value


STEP, TIME = "step", "_timestamp"


@dataclass(frozen=True, slots=True)
class LoggedValue:
    """A number that was logged at a step; `seconds` since 1970."""

    name: str
    value: float
    step: int
    seconds: float


def rows_of_values(values: Iterable[LoggedValue | LogDefect], *, writer: str) -> Iterator[LogItem]:
    """Yield rows of the values of a step, with the time of the first.

    A row ends where a value of another step follows, or another one of a name.
    Args: writer: what wrote the values.
    """
    row: dict[str, float] = {}
    taken: set[str] = set()
    for value in values:
        if isinstance(value, LogDefect):
            yield value
            continue
        if value.name in (STEP, TIME):
            if value.name not in taken:
                taken.add(value.name)
                yield LogDefect(0, f"{value.name}: is the name of a row's own {value.name}; left out")
            continue
        if row and (row[STEP] != value.step or value.name in row):
            yield LogRow(row, writer=writer)
            row = {}
        if not row:
            row = {STEP: value.step, TIME: value.seconds}
        row[value.name] = value.value
    if row:
        yield LogRow(row, writer=writer)


def message_reader(messages: Mapping[str, Fields], name: str) -> Callable[[bytes], Any | None]:
    """Return a function that decodes a message of Protocol Buffers; it returns None for bytes that are not one.

    The schemas of the message and of those in it are given by name, with the fields to read; others are skipped.
    Texts are read as bytes, since a damaged one is not UTF-8.
    """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    from google.protobuf.message import DecodeError

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="log.proto", package="log", syntax="proto2")
    for message, fields in messages.items():
        described = file.message_type.add(name=message)
        for field, (number, kind) in fields.items():
            type_name = kind.removeprefix("repeated ")
            is_message = type_name in messages
            described.field.add(
                name=field,
                number=number,
                label=kinds.LABEL_REPEATED if type_name != kind else kinds.LABEL_OPTIONAL,
                type=kinds.TYPE_MESSAGE if is_message else kinds.Type.Value(f"TYPE_{type_name.upper()}"),
                type_name=f".log.{type_name}" if is_message else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    message_type = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"log.{name}"))

    def read(data: bytes) -> Any | None:
        try:
            return message_type.FromString(data)
        except DecodeError:
            return None

    return read
