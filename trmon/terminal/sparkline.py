"""A series as a line of bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = "_.-=+*%#"
"""For terminals without Unicode."""
GAP = " "


def text_sparkline(values: Sequence[float | None], *, width: int, ascii_only: bool = False) -> str:
    """Return at most `width` bars between the least and the largest finite value; a gap where no value is known.

    The last bar is the newest value; a bar of several values shows the last known one.
    Equal values are drawn in the middle.
    """
    bars = ASCII_BARS if ascii_only else BARS
    known = [_last_known(part) for part in _parts(values, width)]
    finite = [value for value in known if value is not None]
    if not finite:
        return GAP * len(known)
    low, span = min(finite), max(finite) - min(finite)
    return "".join(GAP if value is None else _bar(bars, value - low, span) for value in known)


def _parts(values: Sequence[float | None], width: int) -> list[Sequence[float | None]]:
    n = min(width, len(values))
    edges = [len(values) * i // n for i in range(n + 1)] if n else [0]
    return [values[begin:end] for begin, end in pairwise(edges)]


def _last_known(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None and math.isfinite(value)), None)


def _bar(bars: str, height: float, span: float) -> str:
    return bars[round(height / span * (len(bars) - 1))] if span > 0 else bars[len(bars) // 2 - 1]
