"""Tables of markdown."""

from __future__ import annotations

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table; all columns but the first are aligned to the right."""
    align = ["---", *["---:"] * (len(header) - 1)]
    return [f"| {' | '.join(row)} |" for row in (header, align, *rows)]


def number(value: float, *, digits: int = 2) -> str:
    """Return a number with a fixed number of digits; a dash for NaN."""
    return "-" if value != value else f"{value:.{digits}f}"
