"""Sparklines: the newest steps of a signal in few enough points for a list of runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

POINTS = 48
DIGITS = 4
"""Significant digits: enough for such a small chart, and 500 sparklines are sent in one response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """A signal from its first to its last step in at most 48 points, None if unknown."""

    first_step: int
    last_step: int
    values: tuple[float | None, ...]


def sparkline_of(steps: Any, values: Any) -> Sparkline:
    """Return the sparkline of a signal; each point is the mean of the finite values of its steps.

    Args: steps: [n] int, ascending, n is 1 or more; values: [n] float.
    """
    parts = np.array_split(np.asarray(values, float), min(POINTS, len(values)))
    return Sparkline(first_step=int(steps[0]), last_step=int(steps[-1]), values=tuple(map(_point, parts)))


def _point(part: Any) -> float | None:
    known = part[np.isfinite(part)]
    return float(f"{known.mean():.{DIGITS}g}") if len(known) else None
