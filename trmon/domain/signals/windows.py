"""What a run remembers of a gauge: its newest values, and how it was at the start."""

from __future__ import annotations

import math
from bisect import bisect_left
from statistics import median

import msgspec

GROWTH_SPAN_STEPS = 100
MEDIAN_ROWS = 5
BASELINE_ROWS = 20
WINDOW_ROWS = 128
MAX_SPAN_STEPS = 120
"""The longest span that a window surely reaches back over, with the rows around its end."""
MAD_TO_DEVIATION = 1.4826
"""The standard deviation of normal numbers over the median of their absolute deviations."""


class SignalWindow(msgspec.Struct, frozen=True):
    """The newest gauge values of one signal with their steps, oldest first, at most WINDOW_ROWS of them."""

    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def put(self, step: int, value: float) -> SignalWindow:
        """Return the window with a value; what stood at this step or later is forgotten.

        So the last update of a step replaces the ones before, and a restart that goes back in steps takes its
        place. NaN is not remembered.
        """
        if math.isnan(value):
            return self
        kept = bisect_left(self.steps, step)
        return SignalWindow(
            steps=(*self.steps[:kept], step)[-WINDOW_ROWS:], values=(*self.values[:kept], value)[-WINDOW_ROWS:]
        )

    def growth(self, *, over_steps: int = GROWTH_SPAN_STEPS) -> float:
        """Return the median of the newest 5 values over the median of 5 around `over_steps` earlier.

        Returns: a ratio; NaN until there are 5 values there, or where the earlier median is 0.
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
        """Return the newest value over the median of those in the `over_steps` before it.

        Returns: a ratio; NaN before there are 5 of them, or where their median is 0.
        Source: formulas, section 9, G.
        """
        if not self.steps:
            return math.nan
        before = self.values[bisect_left(self.steps, self.steps[-1] - over_steps) : -1]
        if len(before) < MEDIAN_ROWS or not (usual := median(before)):
            return math.nan
        return self.values[-1] / usual

    def slope(self, *, over_steps: int) -> float:
        """Return the least-squares slope per step of the values in the newest `over_steps`.

        Returns: units a step; NaN until the window reaches back so far and holds 5 values there, or if one of them
        is infinite.
        """
        if not self.steps or self.steps[0] > self.steps[-1] - over_steps:
            return math.nan
        first = bisect_left(self.steps, self.steps[-1] - over_steps)
        steps, values = self.steps[first:], self.values[first:]
        if len(steps) < MEDIAN_ROWS or not all(map(math.isfinite, values)):
            return math.nan
        middle, level = sum(steps) / len(steps), sum(values) / len(values)
        rise = sum((step - middle) * (value - level) for step, value in zip(steps, values, strict=True))
        return rise / sum((step - middle) ** 2 for step in steps)


class Baseline(msgspec.Struct, frozen=True):
    """How a signal was in a run's first 20 steps; it never moves afterwards."""

    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def put(self, step: int, value: float) -> Baseline:
        """Return the baseline with a value, unchanged once it is full.

        The last update of a step replaces the ones before; NaN is not remembered.
        """
        if math.isnan(value):
            return self
        kept = len(self.steps) - (self.steps[-1:] == (step,))
        if kept >= BASELINE_ROWS:
            return self
        return Baseline(steps=(*self.steps[:kept], step), values=(*self.values[:kept], value))

    @property
    def value(self) -> float:
        """The median of the first 20 values; NaN before there are 20."""
        return median(self.values) if len(self.values) >= BASELINE_ROWS else math.nan

    def zscore(self, value: float) -> float:
        """Return how many robust deviations a value lies above the baseline.

        Returns: (value - median)/(1.4826 MAD); NaN before there are 20 values, or where they do not spread.
        Source: Iglewicz and Hoaglin (1993).
        """
        center = self.value
        if not math.isfinite(center):
            return math.nan
        spread = MAD_TO_DEVIATION * median(abs(known - center) for known in self.values)
        return (value - center) / spread if spread else math.nan
