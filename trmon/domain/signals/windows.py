"""What is remembered of a signal: a window of its newest values, a baseline of its first ones, and its quantiles."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate, pairwise
from statistics import median

import msgspec

LARGEST = 1e100


def is_number(value: float) -> bool:
    """Whether a value is neither NaN nor infinite nor beyond 1e100, which no working trainer sends."""
    return abs(value) <= LARGEST


MEDIAN_ROWS = 5
BASELINE_ROWS = 20
WINDOW_ROWS = 128
MAX_SPAN_STEPS = 120
"""The longest span that a full window always covers, including the rows around its end."""
MAD_TO_DEVIATION = 1.4826
"""The standard deviation of normally distributed numbers over their median absolute deviation."""


class SignalWindow(msgspec.Struct, frozen=True):
    """The newest gauge values of one signal with their steps, oldest first, at most WINDOW_ROWS of them."""

    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def with_value(self, step: int, value: float) -> SignalWindow:
        """Return the window with a value; values at this step or later are dropped.

        So the last update of a step replaces the earlier ones, and a restart that goes back in steps replaces the
        steps that it repeats. NaN is ignored.
        """
        if math.isnan(value):
            return self
        kept = bisect_left(self.steps, step)
        return SignalWindow(
            steps=(*self.steps[:kept], step)[-WINDOW_ROWS:], values=(*self.values[:kept], value)[-WINDOW_ROWS:]
        )

    def growth(self, *, over_steps: int) -> float:
        """Return the median of the newest 5 values over the median of 5 around `over_steps` earlier.

        Returns: a ratio; NaN with fewer than 5 values there, or if the earlier median is 0.
        Source: formulas, section 5 (response_length_growth).
        """
        if not self.steps:
            return math.nan
        middle = bisect_left(self.steps, self.steps[-1] - over_steps)
        around = self.values[middle - 2 : middle + 3] if middle >= 2 else ()
        if len(around) < MEDIAN_ROWS or not (earlier := median(around)):
            return math.nan
        return median(self.values[-MEDIAN_ROWS:]) / earlier

    def relative(self, *, over_steps: int) -> float:
        """Return the newest value over the median of the values in the `over_steps` before it.

        Returns: a ratio; NaN with fewer than 5 such values, or if their median is 0.
        Source: formulas, section 9, G.
        """
        if not self.steps:
            return math.nan
        before = self.values[bisect_left(self.steps, self.steps[-1] - over_steps) : -1]
        if len(before) < MEDIAN_ROWS or not (center := median(before)):
            return math.nan
        return self.values[-1] / center

    def slope(self, *, over_steps: int) -> float:
        """Return the least-squares slope per step of the values in the newest `over_steps`.

        Returns: units per step; NaN until the window covers the span with at least 5 values, or if a value is infinite.
        """
        if not self.steps or self.steps[0] > self.steps[-1] - over_steps:
            return math.nan
        first = bisect_left(self.steps, self.steps[-1] - over_steps)
        steps, values = self.steps[first:], self.values[first:]
        if len(steps) < MEDIAN_ROWS or not all(map(is_number, values)):
            return math.nan
        middle, level = sum(steps) / len(steps), sum(values) / len(values)
        rise = sum((step - middle) * (value - level) for step, value in zip(steps, values, strict=True))
        return rise / sum((step - middle) ** 2 for step in steps)


class Baseline(msgspec.Struct, frozen=True):
    """The values of a signal in the first 20 steps of a run; fixed once it is full."""

    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def with_value(self, step: int, value: float) -> Baseline:
        """Return the baseline with a value, unchanged once it is full.

        The last update of a step replaces the earlier ones; NaN is ignored.
        """
        if math.isnan(value):
            return self
        kept = len(self.steps) - (self.steps[-1:] == (step,))
        if kept >= BASELINE_ROWS:
            return self
        return Baseline(steps=(*self.steps[:kept], step), values=(*self.values[:kept], value))

    @property
    def value(self) -> float:
        """The median of the first 20 values; NaN with fewer."""
        return median(self.values) if len(self.values) >= BASELINE_ROWS else math.nan

    def zscore(self, value: float) -> float:
        """Return the robust z-score of a value against the baseline.

        Returns: (value - median)/(1.4826 MAD); NaN with fewer than 20 values, or if the MAD is 0.
        Source: Iglewicz and Hoaglin (1993).
        """
        center = self.value
        if not math.isfinite(center):
            return math.nan
        spread = MAD_TO_DEVIATION * median(abs(known - center) for known in self.values)
        return (value - center) / spread if spread else math.nan


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
