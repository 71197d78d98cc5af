"""A sketch of the quantiles of a stream of values, in bounded space."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate, pairwise

import msgspec

from trmon.domain.signals.windows import is_number

MAX_ATOMS = 128


class QuantileSketch(msgspec.Struct, frozen=True):
    """Values with weights, ascending; beyond 128 the two nearest values are merged into their weighted mean."""

    values: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    def with_atoms(self, atoms: Iterable[tuple[float, float]]) -> QuantileSketch:
        """Return the sketch with more (value, weight) pairs; values that are not finite are skipped."""
        values, weights = list(self.values), list(self.weights)
        for value, weight in atoms:
            if not is_number(value):
                continue
            at = bisect_left(values, value)
            if values[at : at + 1] == [value]:
                weights[at] += weight
            else:
                values.insert(at, value)
                weights.insert(at, weight)
        while len(values) > MAX_ATOMS:
            gaps = [high - low for low, high in pairwise(values)]
            i = gaps.index(min(gaps))
            both = weights[i] + weights[i + 1]
            values[i : i + 2] = [values[i] + gaps[i] * weights[i + 1] / both]
            weights[i : i + 2] = [both]
        return QuantileSketch(tuple(values), tuple(weights))

    def quantile(self, share: float) -> float:
        """Return the smallest value with at least this share of the weight at or below it; NaN if empty."""
        at = bisect_left(list(accumulate(self.weights)), share * math.fsum(self.weights))
        return self.values[at] if at < len(self.values) else math.nan
