"""The bounds and the choices that the rules of a policy are made of, checked once, when a rule is made."""

from __future__ import annotations

import math
import sys
from typing import Any, cast

from trmon_client.core.policies.sequence_statistics import PolicyError


def check_choice(key: str, value: object, *, allowed: tuple[str, ...]) -> None:
    """Errors: PolicyError naming the key and what is allowed."""
    if not isinstance(value, str) or value not in allowed:
        raise PolicyError(f"{key} must be one of {', '.join(allowed)}, and is {cast(str, value)!r:.64}")


def checked_bound(key: str, bound: Any, *, of: str, is_ratio: bool) -> float | None:
    """Return a bound as the float it is compared and hashed as; None is no bound.

    Args: of: what is bounded, for the error; is_ratio: the bound must be above 0.
    Errors: PolicyError for what is no finite number, or no ratio.
    """
    if bound is None:
        return None
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        raise PolicyError(f"{of}: {key} must be a number, and is {type(bound).__name__}")
    if not abs(bound) <= sys.float_info.max:
        raise PolicyError(f"{of}: {key} must be finite; leave it out for no bound")
    if is_ratio and bound <= 0:
        raise PolicyError(f"{of}: {key} bounds a ratio and must be above 0, and is {bound:g}")
    # Adding zero makes -0.0 the zero it equals, for hashes are of its text.
    return float(bound) + 0.0


def check_order(lower: float | None, upper: float | None, *, of: str) -> None:
    """Errors: PolicyError if nothing lies between the bounds."""
    if lower is not None and upper is not None and lower > upper:
        raise PolicyError(f"{of}: lower ({lower:g}) must not be above upper ({upper:g})")


def comparable_bound(bound: float | None, *, is_ratio: bool) -> float | None:
    """Return the bound as it is compared: ratios as logs, so that client and service agree to the last bit."""
    return math.log(bound) if bound is not None and is_ratio else bound
