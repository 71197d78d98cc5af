"""Soft masking: a sequence beyond its bounds keeps a weight that falls with its excess, instead of being rejected.

The excess of a criterion is relative to its bound, so that one tau serves criteria of different units, and bounds that
the service calibrates or moves: (s - upper)/|upper| above an upper bound, (lower - s)/|lower| below a lower one, and 0
within them. Ratios and their bounds are logs. Any violation of a bound of 0 (a ratio's: 1) is an infinite excess.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trmon_client.core.arrays.backend import Array, Arrays, functions_of
from trmon_client.core.policies.bound_checks import checked_bound
from trmon_client.core.policies.criterion import Criterion


def checked_tau(tau: Any) -> float | None:
    """Return the tau of a policy, None for hard masking. Errors: PolicyError unless it is a finite number above 0."""
    return checked_bound("tau", tau, of="soft_tau", is_ratio=True)


class SoftMask:
    """The largest excess of each sequence of a batch, [B] float64, criterion by criterion."""

    def __init__(self, n_tokens: Array, *, tau: float) -> None:
        """Args: n_tokens: [B], of the columns."""
        self._xp = functions_of(n_tokens)
        self._excess = self._xp.cast(n_tokens, "f8") * 0.0
        self._tau = tau

    def add(self, criterion: Criterion, compared: Array, *, violated: Array) -> None:
        """Add a criterion. Args: compared: its statistic, as logs for ratios; violated: [B] bool."""
        excess = relative_excess(self._xp, criterion, compared)
        # NaN propagates: a sequence without the statistic has the weight 0.
        self._excess = self._xp.at_least(self._excess, self._xp.where(violated, excess, 0.0))

    def exclude(self, rows: Array) -> None:
        """Give sequences the weight 0. Args: rows: [B] bool."""
        self._excess = self._xp.where(rows, math.inf, self._excess)

    def weights(self, *, decidable: Array) -> Array:
        """Return exp(-excess/tau), [B] float64 in [0, 1]; 0 where the excess is NaN or the sequence not decidable.

        Args: decidable: [B] bool: neither empty nor invalid.
        Source: [TRM], future work; formulas, section 6.
        """
        is_known = decidable & (self._excess == self._excess)
        with np.errstate(all="ignore"):
            return self._xp.where(is_known, self._xp.exp(-self._excess / self._tau), 0.0)


def relative_excess(xp: Arrays, criterion: Criterion, compared: Array) -> Array:
    """Return how far a statistic is beyond its bounds, in multiples of the violated one; negative within them.

    Args: compared: the statistic, as logs for ratios. NaN stays NaN.
    Source: [TRM], future work; formulas, section 6.
    """
    lower, upper = criterion.lower_compared, criterion.upper_compared
    sides = []
    if upper is not None:
        sides.append((compared - upper) / abs(upper) if upper else (compared - upper) * math.inf)
    if lower is not None:
        sides.append((lower - compared) / abs(lower) if lower else (lower - compared) * math.inf)
    return sides[0] if len(sides) == 1 else xp.at_least(*sides)
