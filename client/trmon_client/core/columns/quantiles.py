"""Quantiles: of a few values, and of |d| from its histogram."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trmon_client.core.columns.columns import Array
from trmon_client.core.columns.histogram import EDGES, ZERO_BIN

_ABS_EDGES: list[float] = [0.0, *EDGES[EDGES > 0].tolist()]
_OVERFLOW = len(_ABS_EDGES) - 1


def percentile(values: Array, fraction: float) -> Array:
    """Return the quantile along the last axis, interpolated linearly.

    Args: values: [..., N], N >= 1; fraction: in [0, 1].
    Source: formulas, section 5.
    """
    ordered = np.sort(values, axis=-1)
    position = fraction * (ordered.shape[-1] - 1)
    below = int(position)
    above = min(below + 1, ordered.shape[-1] - 1)
    return ordered[..., below] + (position - below) * (ordered[..., above] - ordered[..., below])


def abs_quantiles(counts: Array, fractions: Sequence[float], *, largest: Array) -> list[list[float]]:
    """Return quantiles of |d| in nats for each histogram of d, interpolated linearly between tokens.

    Tokens are taken to lie evenly within their bin, 26% wide, and none above `largest`, which also ends the overflow
    bin.
    Args: counts: [P, N_BINS]; fractions: each in [0, 1]; largest: the largest |d|, [P].
    Returns: a row a histogram, a value a fraction; nan where the histogram is empty.
    Source: formulas, sections 3 and 5.
    """
    folded = counts[:, ZERO_BIN:].astype(np.float64)
    folded[:, 1:] += counts[:, ZERO_BIN - 1 :: -1]
    # From here on as plain numbers: of a few values, these are faster than arrays.
    tails = [_Tail(*row) for row in zip(np.add.accumulate(folded, 1).tolist(), largest.tolist(), strict=True)]
    return [[tail.quantile(fraction) for fraction in fractions] for tail in tails]


@dataclass(frozen=True, slots=True)
class _Tail:
    """How many tokens have |d| up to the end of each bin, and the largest |d|."""

    reached: list[float]
    largest: float

    def quantile(self, fraction: float) -> float:
        last = self.reached[-1] - 1
        if last < 0:
            return math.nan
        position = fraction * last
        rank = math.floor(position)
        below, above = self._value_at(rank), self._value_at(min(rank + 1, last))
        return below + (position - rank) * (above - below)

    def _value_at(self, rank: float) -> float:
        """Return the |d| of the token of a rank, counted from 0; of the last, the largest itself."""
        if rank == self.reached[-1] - 1:
            return self.largest
        bin_ = min(bisect_right(self.reached, rank), _OVERFLOW)
        before = self.reached[bin_ - 1] if bin_ else 0.0
        high = self.largest if bin_ == _OVERFLOW else _ABS_EDGES[bin_ + 1]
        share = (rank - before + 0.5) / (self.reached[bin_] - before)
        value = _ABS_EDGES[bin_] + share * (high - _ABS_EDGES[bin_])
        return min(value, self.largest)
