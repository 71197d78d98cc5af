"""Flapping: an alert that fires and resolves too often is reported once, then muted until it is stable again."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

MAX_TRANSITIONS = 6
WITHIN_STEPS = 100


class FlapState(Enum):
    """Whether an alert flaps at one of its transitions: not at all, from this one on, or since an earlier one."""

    STABLE = "stable"
    STARTED = "started"
    ONGOING = "ongoing"


def flap_state(steps: Iterable[int], *, at_step: int, now_step: int) -> FlapState:
    """Return whether an alert flaps at a transition, given the newest step of the run.

    Args: steps: those of all transitions of the alert in the attempt; at_step: that of the transition.
    """
    known = tuple(steps)
    until_then = _count_recent(known, until=at_step)
    if until_then < MAX_TRANSITIONS or _count_recent(known, until=now_step) < MAX_TRANSITIONS:
        return FlapState.STABLE
    return FlapState.STARTED if until_then == MAX_TRANSITIONS else FlapState.ONGOING


def _count_recent(steps: tuple[int, ...], *, until: int) -> int:
    return sum(until - WITHIN_STEPS < step <= until for step in steps)
