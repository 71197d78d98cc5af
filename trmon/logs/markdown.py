"""Markdown tables among other lines; outer pipes may be missing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trmon.domain.analysis.logged_steps import LogRow
from trmon.logs.console_lines import LineShape
from trmon.logs.log_format import LogItem
from trmon.logs.tables import column_name, is_metric_table, row_of_cells

_DELIMITER = re.compile(r"\s*:?-+:?\s*")
_CELL_BORDER = re.compile(r"(?<!\\)\|")


class MarkdownTables(LineShape):
    """The lines of a table of metrics are rows."""

    def __init__(self) -> None:
        self.n_refused = 0
        self._former: Sequence[str] = ()
        self._names: Sequence[str] = ()
        self._is_accepted = False

    def add_line(self, line: str, number: int) -> Iterator[LogItem]:
        """Yield the row of a line in a table of metrics."""
        if "|" not in line:
            self._former = self._names = ()
            return
        cells = cells_of(line)
        if self._names and not self._is_accepted and not is_metric_table(self._names, cells):
            self.n_refused += 1
            self._names, self._former = (), cells
        elif self._names:
            self._is_accepted = True
            if row := row_of_cells(self._names, cells):
                yield LogRow(row, number)
        elif _is_delimiter(self._former, cells):
            self._names, self._is_accepted = [column_name(name) for name in self._former], False
        else:
            self._former = cells


def cells_of(line: str) -> list[str]:
    """Return the cells of a line without their emphasis."""
    text = line.strip().removeprefix("|")
    text = text[:-1] if text.endswith("|") and not text.endswith("\\|") else text
    return [cell.strip().strip("*`").strip().replace("\\", "") for cell in _CELL_BORDER.split(text)]


def _is_delimiter(header: Sequence[str], cells: Sequence[str]) -> bool:
    """Whether cells stand below a header: dashes, as many as names."""
    return len(header) == len(cells) > 1 and all(_DELIMITER.fullmatch(cell) for cell in cells)


def has_table(lines: Sequence[str]) -> bool:
    """Whether lines have a table of metrics, and nothing before it looks like a log."""
    former: Sequence[str] = ()
    for i, line in enumerate(lines):
        cells = cells_of(line) if "|" in line else ()
        if _is_delimiter(former, cells) and i + 1 < len(lines):
            return is_metric_table(former, cells_of(lines[i + 1]))
        former = cells
    return False


def tables_found(n_refused: int) -> str:
    """Return what to say of tables that are none of metrics."""
    if not n_refused:
        return ""
    return f" with {n_refused} {'table' if n_refused == 1 else 'tables'}, none with a column of steps or a known metric"
