"""The history of a run's reward: how far it has fallen from its peak, in units of what makes a collapse."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from trmon.domain.signals.magnitude import is_number
from trmon.domain.signals.quantile_sketch import QuantileSketch
from trmon.domain.signals.smoothed_signal import FIRST_STEPS, moving_average

EMA_STEPS = 30
"""The weight of a new reward is 2/31."""
NOISE_STEPS = 200
NOISE_ERRORS = 8.0
LOWEST_SHARE = 0.01
COLLAPSE_SHARE = 0.3
DECLINE_SHARE = 0.2
RELATIVE_FLOOR = 1e-9

LOWER_ATOMS: tuple[tuple[str, float], ...] = (
    ("reward_min", 0.005),
    ("reward_q01", 0.025),
    ("reward_q05", 0.12),
    ("reward_q25", 0.225),
    ("reward_median", 0.625),
)
"""The quantiles of a step's rewards, each with the share of the sequences that it stands for."""


class RewardHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The moving average of the step's mean reward, its peak from step 20 on, its noise and its lowest rewards.

    `squares` are the squared differences between the newest 200 steps and the step before each.
    Source: formulas, section 10, R.
    """

    n: int = 0
    average: float = 0.0
    peak: float = 0.0
    first_sum: float = 0.0
    last: float = 0.0
    squares: tuple[float, ...] = ()
    lowest: QuantileSketch = QuantileSketch()

    def with_step(self, reward: float, signals: Mapping[str, float]) -> RewardHistory:
        """Return the history after a step; a step whose mean reward is no number is skipped."""
        if not is_number(reward):
            return self
        average = reward if not self.n else moving_average(self.average, reward, steps=EMA_STEPS)
        n = self.n + 1
        return RewardHistory(
            n=n,
            average=average,
            peak=average if n <= FIRST_STEPS else max(self.peak, average),
            first_sum=self.first_sum + reward if n <= FIRST_STEPS else self.first_sum,
            last=reward,
            squares=self.squares if not self.n else (*self.squares, (reward - self.last) ** 2)[-NOISE_STEPS:],
            lowest=self.lowest.with_atoms(_atoms(reward, signals)),
        )

    @property
    def falls(self) -> tuple[float, float]:
        """The fall from the peak over the largest one that is no collapse, and over the largest that is no decline.

        Above 1 the reward collapses, or declines. NaN in a run's first 20 steps.
        """
        if self.n <= FIRST_STEPS:
            return math.nan, math.nan
        fall = self.peak - self.average
        spread = max(self.peak - self.lowest.quantile(LOWEST_SHARE), self.peak - self.first_sum / FIRST_STEPS)
        least = max(NOISE_ERRORS * self.standard_error, RELATIVE_FLOOR * max(1.0, abs(self.peak)))
        return fall / max(COLLAPSE_SHARE * spread, least), fall / max(DECLINE_SHARE * spread, least)

    @property
    def standard_error(self) -> float:
        """The standard error of the moving average, from differences between steps; 0 with fewer than two steps."""
        weight = 2.0 / (EMA_STEPS + 1)
        mean_square = math.fsum(self.squares) / len(self.squares) if self.squares else 0.0
        return math.sqrt(mean_square / 2.0 * weight / (2.0 - weight))


def _atoms(reward: float, signals: Mapping[str, float]) -> list[tuple[float, float]]:
    """Return the lower part of a step's rewards, or its mean alone if the quantiles are unknown."""
    known = [(signals.get(name, math.nan), share) for name, share in LOWER_ATOMS]
    return known if all(is_number(value) for value, _ in known) else [(reward, 1.0)]
