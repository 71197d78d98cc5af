"""Quantiles of a few values, and of |d| from its histogram."""

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
    Source: formulas, sections 3 and 5.
    """
    ordered = np.sort(values, axis=-1)
    position = fraction * (ordered.shape[-1] - 1)
    below = int(position)
    above = min(below + 1, ordered.shape[-1] - 1)
    return ordered[..., below] + (position - below) * (ordered[..., above] - ordered[..., below])


def quantile_of_sorted(ordered: Array, fraction: float) -> float:
    """Return the quantile of sorted values, as `percentile` does; Python numbers are faster. Args: ordered: [N]."""
    position = fraction * (len(ordered) - 1)
    below = int(position)
    value = ordered.item(below)
    if position > below:
        value += (position - below) * (ordered.item(below + 1) - value)
    return float(value)


def abs_quantiles(counts: Array, fractions: Sequence[float], *, largest: Array) -> list[list[float]]:
    """Return quantiles of |d| in nats for each histogram of d, interpolated linearly between tokens.

    Tokens are assumed to be spread evenly within their bin, which is 26% wide; the overflow bin ends at `largest`.
    Args: counts: [P, N_BINS]; fractions: each in [0, 1]; largest: the largest |d|, [P].
    Returns: a row for each histogram with a value for each fraction; nan for an empty histogram.
    Source: formulas, sections 3 and 5.
    """
    folded = counts[:, ZERO_BIN:].astype(np.float64)
    folded[:, 1:] += counts[:, ZERO_BIN - 1 :: -1]
    # Python numbers from here on, which are faster than arrays for a few values.
    distributions = [
        _AbsDistribution(*row) for row in zip(np.add.accumulate(folded, 1).tolist(), largest.tolist(), strict=True)
    ]
    return [[distribution.quantile(fraction) for fraction in fractions] for distribution in distributions]


@dataclass(frozen=True, slots=True)
class _AbsDistribution:
    """The number of tokens with |d| up to the end of each bin, and the largest |d|."""

    cumulative: list[float]
    largest: float

    def quantile(self, fraction: float) -> float:
        last = self.cumulative[-1] - 1
        if last < 0:
            return math.nan
        position = fraction * last
        rank = math.floor(position)
        below, above = self._value_at(rank), self._value_at(min(rank + 1, last))
        return below + (position - rank) * (above - below)

    def _value_at(self, rank: float) -> float:
        """Return |d| of the token at a rank, counted from 0; the last is the largest."""
        if rank == self.cumulative[-1] - 1:
            return self.largest
        bin_ = min(bisect_right(self.cumulative, rank), _OVERFLOW)
        before = self.cumulative[bin_ - 1] if bin_ else 0.0
        high = self.largest if bin_ == _OVERFLOW else _ABS_EDGES[bin_ + 1]
        share = (rank - before + 0.5) / (self.cumulative[bin_] - before)
        value = _ABS_EDGES[bin_] + share * (high - _ABS_EDGES[bin_])
        return min(value, self.largest)
