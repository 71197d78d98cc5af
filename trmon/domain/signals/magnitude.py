"""The magnitude up to which a number is taken as one: the squares and sums of larger ones overflow."""

from __future__ import annotations

LARGEST = 1e100


def is_number(value: float) -> bool:
    """Whether a value is neither NaN nor infinite nor beyond 1e100, which no working trainer sends."""
    return abs(value) <= LARGEST
