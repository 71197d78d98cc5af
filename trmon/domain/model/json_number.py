"""Numbers in JSON documents, which have no NaN and no infinities."""

from __future__ import annotations

import math

JsonNumber = float | str | None
"""A number in JSON: null for NaN, and "inf" or "-inf"."""


def json_number(value: float) -> JsonNumber:
    """Return a number as JSON can express it: null for NaN, and infinities by name."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
