"""The severities of findings and alerts, and numbers as JSON has them."""

from __future__ import annotations

import math
from enum import Enum


class Severity(Enum):
    """The urgency of an alert: act now (page), investigate soon (warn), for information (info)."""

    PAGE = "page"
    WARN = "warn"
    INFO = "info"


SEVERITY_RANK = {Severity.INFO: 0, Severity.WARN: 1, Severity.PAGE: 2}

JsonNumber = float | str | None
"""A number in JSON: null for NaN, and "inf" or "-inf"."""


def json_number(value: float) -> JsonNumber:
    """Return a number as JSON can express it: null for NaN, and infinities by name."""
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
