"""Detects a collapse: the step at which a run lost what it had learned, and the sign that showed it."""

from __future__ import annotations

import math
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

    The reward fell: its moving average is at most 0.7 of its running peak, and stays there for 100 steps. Or the
    gradient norm exceeded 10 times the median of the up to 50 norms before it, and 20 to 100 steps later the average
    is 15% lower in the mean. A fall is measured from the peak alone, since the gain of a short run is mostly noise.
    Args: rewards, grad_norms: one a step, no reward negative; a NaN reward leaves the average as it was.
    Source: formulas, section 9.
    """
    smooth = smoothed(rewards)
    onsets = [
        Collapse(step, sign)
        for step, sign in (
            (_fall(smooth), CollapseSign.REWARD_FELL),
            (_spike(smooth, grad_norms), CollapseSign.GRADIENT_SPIKED),
        )
        if step is not None
    ]
    return min(onsets, key=lambda onset: onset.step, default=None)


def smoothed(rewards: Sequence[float]) -> list[float]:
    """Return the exponential moving average over 20 steps; NaN until 20 rewards are known, whose mean it starts from.

    The start is a mean because a run's first reward alone is too noisy to be a peak.
    """
    known: list[float] = []
    average = math.nan
    averages = []
    for reward in rewards:
        if not math.isnan(reward):
            known.append(reward)
            average = _next(average, known)
        averages.append(average)
    return averages


def _next(average: float, known: list[float]) -> float:
    if len(known) < SPAN:
        return math.nan
    if len(known) == SPAN:
        return fmean(known)
    return average + 2 / (SPAN + 1) * (known[-1] - average)


def _fall(smooth: list[float]) -> int | None:
    peak = -math.inf
    for step, reward in enumerate(smooth[:-WITHIN]):
        peak = max(peak, reward)
        level = (1 - SHARE_LOST) * peak
        if reward < peak and reward <= level and max(smooth[step + 1 : step + 1 + WITHIN]) <= level:
            return step
    return None


def _spike(smooth: list[float], grad_norms: Sequence[float]) -> int | None:
    for step, norm in enumerate(grad_norms[: max(0, len(smooth) - WITHIN)]):
        before = grad_norms[max(0, step - NORMS_BEFORE) : step]
        if len(before) < SPAN or not norm > SPIKE * median(before):
            continue
        after = fmean(smooth[step + SETTLES_AFTER : step + 1 + WITHIN])
        if after <= (1 - SHARE_LOST_AFTER_SPIKE) * smooth[step]:
            return step
    return None
