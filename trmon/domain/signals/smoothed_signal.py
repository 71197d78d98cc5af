"""A smoothed signal: its moving average against the first steps of the run and against 20 steps before."""

from __future__ import annotations

import math

import msgspec

from trmon.domain.signals.magnitude import is_number

FIRST_STEPS = 20
"""The steps that make the baseline of a run. Source: formulas, section 10."""
EMA_STEPS = 20
CHANGE_STEPS = 20


class SmoothedSignal(msgspec.Struct, frozen=True):
    """The exponential moving average of a signal over 20 steps, from its first value; NaN and infinity are skipped.

    `first` holds the first 20 values, `averages` the newest 21 averages, oldest first.
    """

    first: tuple[float, ...] = ()
    averages: tuple[float, ...] = ()

    def with_value(self, value: float) -> SmoothedSignal:
        """Return the signal after one more step."""
        if not is_number(value):
            return self
        average = value if not self.averages else moving_average(self.average, value, steps=EMA_STEPS)
        return SmoothedSignal(
            first=self.first if len(self.first) >= FIRST_STEPS else (*self.first, value),
            averages=(*self.averages, average)[-CHANGE_STEPS - 1 :],
        )

    @property
    def average(self) -> float:
        """The moving average; NaN without a value."""
        return self.averages[-1] if self.averages else math.nan

    @property
    def relative(self) -> float:
        """The moving average over the mean of the first 20 values, infinite over 0; NaN with fewer or if both are 0."""
        if len(self.first) < FIRST_STEPS:
            return math.nan
        baseline = math.fsum(self.first) / FIRST_STEPS
        if baseline == 0.0:
            return math.copysign(math.inf, self.average) if self.average else math.nan
        return self.average / baseline

    @property
    def rise(self) -> float:
        """The moving average minus that of 20 steps before; NaN with fewer steps."""
        return self.average - self.averages[0] if len(self.averages) > CHANGE_STEPS else math.nan


def moving_average(average: float, value: float, *, steps: int) -> float:
    """Return the exponential moving average after a value, with the weight 2/(steps + 1)."""
    return average + (value - average) * 2.0 / (steps + 1)
