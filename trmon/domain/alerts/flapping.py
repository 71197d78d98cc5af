"""Flapping: an alert that comes and goes too often; said once, then quiet until it settles."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

MAX_TRANSITIONS = 6
WITHIN_STEPS = 100


class FlapState(Enum):
    """Whether an alert flaps at one of its transitions: not at all, with this one, or already before it."""

    CALM = "calm"
    BEGINS = "begins"
    GOES_ON = "goes on"


def flap_state(steps: Iterable[int], *, at_step: int, now_step: int) -> FlapState:
    """Return whether an alert flaps at a transition, looked at from the run's newest step.

    Args: steps: those of all transitions of the alert in the attempt; at_step: that of the transition.
    """
    known = tuple(steps)
    until_then = _count(known, until=at_step)
    if until_then < MAX_TRANSITIONS or _count(known, until=now_step) < MAX_TRANSITIONS:
        return FlapState.CALM
    return FlapState.BEGINS if until_then == MAX_TRANSITIONS else FlapState.GOES_ON


def _count(steps: tuple[int, ...], *, until: int) -> int:
    return sum(until - WITHIN_STEPS < step <= until for step in steps)
