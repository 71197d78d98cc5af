"""A bounded sketch of a distribution, from which low quantiles are read."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

MAX_ATOMS = 128


class QuantileSketch(msgspec.Struct, frozen=True):
    """Values with weights, ascending; beyond 128 the two nearest values are merged into their weighted mean."""

    values: tuple[float, ...] = ()
    weights: tuple[float, ...] = ()

    def with_atoms(self, atoms: Iterable[tuple[float, float]]) -> QuantileSketch:
        """Return the sketch with more (value, weight) pairs; values that are not finite are skipped."""
        merged = dict(zip(self.values, self.weights, strict=True))
        for value, weight in atoms:
            if math.isfinite(value):
                merged[value] = merged.get(value, 0.0) + weight
        ordered = sorted(merged.items())
        while len(ordered) > MAX_ATOMS:
            _merge_nearest(ordered)
        return QuantileSketch(tuple(value for value, _ in ordered), tuple(weight for _, weight in ordered))

    def quantile(self, share: float) -> float:
        """Return the smallest value with at least this share of the weight at or below it; NaN if empty."""
        wanted, seen = share * math.fsum(self.weights), 0.0
        for value, weight in zip(self.values, self.weights, strict=True):
            seen += weight
            if seen >= wanted:
                return value
        return math.nan


def _merge_nearest(ordered: list[tuple[float, float]]) -> None:
    i = min(range(len(ordered) - 1), key=lambda i: ordered[i + 1][0] - ordered[i][0])
    (low, low_weight), (high, high_weight) = ordered[i], ordered[i + 1]
    weight = low_weight + high_weight
    ordered[i : i + 2] = [(low + (high - low) * high_weight / weight, weight)]
