"""The growth of the drift: its moving average against the first steps of the run."""

from __future__ import annotations

import math
from statistics import median

import msgspec

from trmon.domain.signals.magnitude import LARGEST
from trmon.domain.signals.smoothed_signal import EMA_STEPS, moving_average

BASELINE_STEPS = 60


class DriftGrowth(msgspec.Struct, frozen=True):
    """The moving average of kl_k3 over 20 steps, and its first 60 values. Source: formulas, sections 9 and 10."""

    average: float = 0.0
    first: tuple[float, ...] = ()

    def with_value(self, kl_k3: float) -> DriftGrowth:
        """Return the growth after one more step; NaN and infinity are skipped."""
        if not math.isfinite(kl_k3):
            return self
        kl_k3 = min(kl_k3, LARGEST)
        average = kl_k3 if not self.first else moving_average(self.average, kl_k3, steps=EMA_STEPS)
        return DriftGrowth(average, self.first if len(self.first) >= BASELINE_STEPS else (*self.first, kl_k3))

    @property
    def relative(self) -> float:
        """The moving average over the median of the first 60 values; NaN with fewer than 20, infinite over 0."""
        if len(self.first) < EMA_STEPS:
            return math.nan
        baseline = median(self.first)
        return self.average / baseline if baseline > 0 else math.inf
