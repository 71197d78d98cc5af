"""Checks of the bounds and choices of a policy's criteria and rules, run when a criterion or rule is built."""

from __future__ import annotations

import math
import sys
from typing import Any, cast

from trmon_client.core.policies.sequence_statistics import PolicyError


def check_choice(key: str, value: object, *, allowed: tuple[str, ...]) -> None:
    """Check that a value is one of the allowed ones. Errors: PolicyError naming the key and the allowed values."""
    if not isinstance(value, str) or value not in allowed:
        raise PolicyError(f"{key} must be one of {', '.join(allowed)}, got {cast(str, value)!r:.64}")


def checked_bound(key: str, bound: Any, *, of: str, is_ratio: bool) -> float | None:
    """Return a bound as the float used in comparisons and hashes; None means no bound.

    Args: of: the name of the bounded statistic, for the error; is_ratio: the bound must be above 0.
    Errors: PolicyError unless the bound is a finite number, above 0 for a ratio.
    """
    if bound is None:
        return None
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        raise PolicyError(f"{of}: {key} must be a number, got {type(bound).__name__}")
    if not abs(bound) <= sys.float_info.max:
        raise PolicyError(f"{of}: {key} must be finite; omit it for no bound")
    if is_ratio and bound <= 0:
        raise PolicyError(f"{of}: {key} bounds a ratio and must be above 0, got {bound:g}")
    # Adding zero turns -0.0 into 0.0, because the hash covers the text of the number.
    return float(bound) + 0.0


def check_order(lower: float | None, upper: float | None, *, of: str) -> None:
    """Check that lower is not above upper. Errors: PolicyError."""
    if lower is not None and upper is not None and lower > upper:
        raise PolicyError(f"{of}: lower ({lower:g}) must not be above upper ({upper:g})")


def comparable_bound(bound: float | None, *, is_ratio: bool) -> float | None:
    """Return the bound used in comparisons: the log for ratios, so that client and service agree to the last bit."""
    return math.log(bound) if bound is not None and is_ratio else bound
