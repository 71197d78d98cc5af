"""What a run remembers of a gauge: its newest values, and how it was at the start."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from statistics import median

GROWTH_SPAN_STEPS = 100
GROWTH_ROWS = 5
BASELINE_ROWS = 20
WINDOW_ROWS = 128


@dataclass(frozen=True, slots=True)
class Window:
    """The newest gauge values of one signal with their steps, oldest first, at most WINDOW_ROWS of them."""

    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def put(self, step: int, value: float) -> Window:
        """Return the window with a value; what stood at this step or later is forgotten.

        So the last update of a step replaces the ones before, and a restart that goes back in steps takes its
        place. NaN is not remembered.
        """
        if math.isnan(value):
            return self
        kept = bisect_left(self.steps, step)
        return Window(
            steps=(*self.steps[:kept], step)[-WINDOW_ROWS:], values=(*self.values[:kept], value)[-WINDOW_ROWS:]
        )

    def growth(self) -> float:
        """Return the median of the newest 5 values over the median of 5 around 100 steps earlier.

        Returns: a ratio; NaN until there are 5 values there, or where the earlier median is 0.
        Source: formulas, section 5 (response_length_growth).
        """
        if not self.steps:
            return math.nan
        middle = bisect_left(self.steps, self.steps[-1] - GROWTH_SPAN_STEPS)
        around = self.values[middle - 2 : middle + 3] if middle >= 2 else ()
        if len(around) < GROWTH_ROWS or not (earlier := median(around)):
            return math.nan
        return median(self.values[-GROWTH_ROWS:]) / earlier


@dataclass(frozen=True, slots=True)
class Baseline:
    """How a signal was in a run's first 20 gauge rows; it never moves afterwards."""

    values: tuple[float, ...] = ()

    def put(self, value: float) -> Baseline:
        """Return the baseline with a value, unchanged once it is full; NaN is not remembered."""
        if math.isnan(value) or len(self.values) >= BASELINE_ROWS:
            return self
        return Baseline((*self.values, value))

    @property
    def value(self) -> float:
        """The median of the first 20 values; NaN before there are 20."""
        return median(self.values) if len(self.values) >= BASELINE_ROWS else math.nan
