"""The history of the inputs over a run: baseline, moving averages, spread and extremes, advanced step by step."""

from __future__ import annotations

from enum import IntEnum

import msgspec
import numpy as np

from trmon.domain.collapse_risk.risk_inputs import N_INPUTS, Values

BASELINE_STEPS = 30
"""The first values of an input, which its later ones are compared with."""
SETTLING_STEPS = 10
"""Values after which extremes and the spread are taken, since the averages begin with a single value."""
FAST_STEPS, MIDDLE_STEPS, SLOW_STEPS = 10, 20, 50
"""Steps of the moving averages."""
AVERAGE_WEIGHTS = np.array([[2 / (steps + 1)] for steps in (FAST_STEPS, MIDDLE_STEPS, SLOW_STEPS)])
SPREAD_WEIGHT = 2 / (MIDDLE_STEPS + 1)
JUMP_MEMORY = 0.95
"""The share of the largest jump that is left a step later."""


class Statistic(IntEnum):
    """What is kept of each input; rows of the history's matrix."""

    COUNT = 0
    BASE_SUM = 1
    BASE_SUM_SQ = 2
    BASE_SPREAD_SUM = 3
    FAST = 4
    MIDDLE = 5
    SLOW = 6
    SPREAD = 7
    LARGEST = 8
    SMALLEST = 9
    JUMP = 10


SHAPE = (len(Statistic), N_INPUTS)


class InputHistory(msgspec.Struct, frozen=True):
    """The statistics of the inputs after a number of steps, as the bytes of a float64 matrix [Statistic, INPUTS]."""

    matrix: bytes = b""

    @property
    def statistics(self) -> Values:
        """The matrix [Statistic, INPUTS]; read-only."""
        return np.frombuffer(self.matrix).reshape(SHAPE) if self.matrix else np.zeros(SHAPE)

    def with_step(self, values: Values) -> InputHistory:
        """Return the history after one more step's scaled values [INPUTS]; an input that is NaN stays as it was."""
        return InputHistory(advanced(self.statistics, values).tobytes())


def advanced(before: Values, values: Values) -> Values:
    """Return the statistics [Statistic, INPUTS] after one more step's scaled values [INPUTS]."""
    known = np.isfinite(values)
    value = np.where(known, values, 0.0)
    count = before[Statistic.COUNT]
    is_first, has_settled = count == 0, count >= SETTLING_STEPS
    rise = np.where(is_first, 0.0, value - before[Statistic.SLOW])
    deviation = np.abs(rise)
    after = before.copy()
    after[Statistic.COUNT] += 1
    if (in_baseline := count < BASELINE_STEPS).any():
        after[Statistic.BASE_SUM] += in_baseline * value
        after[Statistic.BASE_SUM_SQ] += in_baseline * value * value
        after[Statistic.BASE_SPREAD_SUM] += (in_baseline & has_settled) * deviation
    averages = after[Statistic.FAST : Statistic.SLOW + 1]
    averages += np.where(is_first, 1.0, AVERAGE_WEIGHTS) * (value - averages)
    spread, middle = after[Statistic.SPREAD], after[Statistic.MIDDLE]
    spread += np.where(has_settled, SPREAD_WEIGHT, 1.0) * (deviation - spread)
    after[Statistic.LARGEST] = np.maximum(middle, np.where(has_settled, before[Statistic.LARGEST], -np.inf))
    after[Statistic.SMALLEST] = np.minimum(middle, np.where(has_settled, before[Statistic.SMALLEST], np.inf))
    np.maximum(JUMP_MEMORY * before[Statistic.JUMP], rise, out=after[Statistic.JUMP])
    return after if known.all() else np.where(known, after, before)
