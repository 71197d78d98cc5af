"""Rows of logs that hold values one by one: the values of a step that stand together are a row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from trmon.domain.analysis.logged_steps import LogDefect, LogRow
from trmon.log_formats.log_format import LogItem

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
