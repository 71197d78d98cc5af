"""Running statistics: a smoothed value, a sketch of quantiles, the fall of the reward from its peak."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from itertools import pairwise

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
            _merge_nearest(values, weights)
        return QuantileSketch(tuple(values), tuple(weights))

    def quantile(self, share: float) -> float:
        """Return the smallest value with at least this share of the weight at or below it; NaN if empty."""
        wanted, seen = share * math.fsum(self.weights), 0.0
        for value, weight in zip(self.values, self.weights, strict=True):
            seen += weight
            if seen >= wanted:
                return value
        return math.nan


def _merge_nearest(values: list[float], weights: list[float]) -> None:
    gaps = [high - low for low, high in pairwise(values)]
    i = gaps.index(min(gaps))
    low, weight = values[i], weights[i] + weights[i + 1]
    values[i : i + 2] = [low + gaps[i] * weights[i + 1] / weight]
    weights[i : i + 2] = [weight]


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


REWARD_EMA_STEPS = 30
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
        average = reward if not self.n else moving_average(self.average, reward, steps=REWARD_EMA_STEPS)
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
        weight = 2.0 / (REWARD_EMA_STEPS + 1)
        mean_square = math.fsum(self.squares) / len(self.squares) if self.squares else 0.0
        return math.sqrt(mean_square / 2.0 * weight / (2.0 - weight))


def _atoms(reward: float, signals: Mapping[str, float]) -> list[tuple[float, float]]:
    """Return the lower part of a step's rewards, or its mean alone if the quantiles are unknown."""
    known = [(signals.get(name, math.nan), share) for name, share in LOWER_ATOMS]
    return known if all(is_number(value) for value, _ in known) else [(reward, 1.0)]
