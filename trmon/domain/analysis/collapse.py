"""Detects a collapse: the step at which a run lost what it had learned, and the sign that showed it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import fmean, median

SPAN = 20
"""Steps of the moving average of the reward."""
SHARE_LOST = 0.3
"""The fraction of its running peak that the average must lose."""
WITHIN = 100
"""A fall must last this many steps; the fall after a spike is measured at the end of them."""
SPIKE = 10.0
"""A spike is this many times the median of the gradient norms before it."""
NORMS_BEFORE = 50
SETTLES_AFTER = 20
SHARE_LOST_AFTER_SPIKE = 0.15


class CollapseSign(Enum):
    """The sign of a collapse."""

    REWARD_FELL = "reward_fell"
    GRADIENT_SPIKED = "gradient_spiked"


@dataclass(frozen=True, slots=True)
class Collapse:
    """The first step of a collapse, counted from the first given reward, and its sign."""

    step: int
    sign: CollapseSign


def find_collapse(rewards: Sequence[float], *, grad_norms: Sequence[float] = ()) -> Collapse | None:
    """Return the onset of a run's collapse, or None if there is no collapse or too few steps to decide.

    A fall is measured from the peak alone, since the gain of a short run is mostly noise.
    Args: rewards, grad_norms: one a step, no reward negative; a NaN reward leaves the average as it was.
    Source: formulas, section 9.
    """
    search = CollapseSearch()
    norms = [*grad_norms, *[math.nan] * (len(rewards) - len(grad_norms))]
    for step, (reward, norm) in enumerate(zip(rewards, norms, strict=False)):
        search.add(step, reward, grad_norm=norm)
    return search.found


class CollapseSearch:
    """Finds the first collapse of a run, step by step: 100 steps after its onset, with 151 steps in memory."""

    def __init__(self) -> None:
        self.found: Collapse | None = None
        self._average = RewardAverage()
        self._peak = -math.inf
        self._smooth: deque[tuple[int, float]] = deque(maxlen=WITHIN + 1)
        self._norms: deque[float] = deque(maxlen=NORMS_BEFORE + WITHIN + 1)

    def add(self, step: int, reward: float, *, grad_norm: float = math.nan) -> None:
        """Add a step, whose number is the onset that is found if the collapse begins with it."""
        self._smooth.append((step, self._average.add(reward)))
        self._norms.append(grad_norm)
        if len(self._smooth) <= WITHIN or self.found is not None:
            return
        first, *after = [average for _, average in self._smooth]
        self._peak = max(self._peak, first)
        sign = self._sign(first, after)
        if sign is not None:
            self.found = Collapse(self._smooth[0][0], sign)

    @property
    def is_down(self) -> bool:
        """Whether the average has lost, at the newest step, what a collapse must lose."""
        averages = [average for _, average in self._smooth]
        return bool(averages) and averages[-1] <= (1 - SHARE_LOST) * max(self._peak, *averages)

    def _sign(self, average: float, after: Sequence[float]) -> CollapseSign | None:
        """Return whether a collapse begins 100 steps before the newest one. Args: after: the 100 later averages."""
        level = (1 - SHARE_LOST) * self._peak
        if average < self._peak and average <= level and max(after) <= level:
            return CollapseSign.REWARD_FELL
        if self._is_spike() and fmean(after[SETTLES_AFTER - 1 :]) <= (1 - SHARE_LOST_AFTER_SPIKE) * average:
            return CollapseSign.GRADIENT_SPIKED
        return None

    def _is_spike(self) -> bool:
        *before, norm = list(self._norms)[: len(self._norms) - WITHIN]
        known = [each for each in before if not math.isnan(each)]
        return len(known) >= SPAN and norm > SPIKE * median(known)


def smoothed(rewards: Sequence[float]) -> list[float]:
    """Return the exponential moving average over 20 steps, NaN before; it starts at their mean, which is less noisy."""
    average = RewardAverage()
    return [average.add(reward) for reward in rewards]


class RewardAverage:
    """The exponential moving average of `smoothed`, step by step."""

    def __init__(self) -> None:
        self._first: list[float] = []
        self._average = math.nan

    def add(self, reward: float) -> float:
        """Return the average after a step; a NaN reward leaves it as it was."""
        if math.isnan(reward):
            return self._average
        if len(self._first) < SPAN:
            self._first.append(reward)
            if len(self._first) == SPAN:
                self._average = fmean(self._first)
        else:
            self._average += 2 / (SPAN + 1) * (reward - self._average)
        return self._average
