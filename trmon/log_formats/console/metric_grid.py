"""Grids of names and numbers after `Train step 3/100 done.`, as AReaL prints the statistics of a step."""

from __future__ import annotations

import re
from collections.abc import Iterator

from trmon.domain.analysis.logged_steps import LogRow

_HEADING = re.compile(r"\bTrain step (\d+)/\d+ done")
_NUMBER = re.compile(r"^(?:[-+]?[\d.]+(?:e[-+]?\d+)?|nan|-?inf)$")
CELL = "│"


class MetricGrid:
    """The cells of all grids after a heading, up to the next, are a row."""

    def __init__(self) -> None:
        self._row: dict[str, object] = {}
        self._line = 0

    def add_line(self, line: str, number: int) -> Iterator[LogRow]:
        """Yield the row that a new heading ends."""
        heading = _HEADING.search(line)
        if heading is not None:
            yield from self.finish()
            self._row, self._line = {"step": heading.group(1)}, number
        elif self._row and CELL in line:
            cells = [cell.strip() for cell in line.split(CELL)[1:-1]]
            pairs = zip(cells[::2], cells[1::2], strict=False)
            self._row |= {name: value for name, value in pairs if name and _NUMBER.match(value)}

    def finish(self) -> Iterator[LogRow]:
        """Yield the last row."""
        row, self._row = self._row, {}
        if len(row) > 1:
            yield LogRow(row, self._line)
