"""Notices that the clock was set, by the clock that nobody sets."""

from __future__ import annotations

from collections.abc import Callable

JUMP_SECONDS = 5.0
"""A smaller difference between the clocks is their drift, or a slow round; no limit of the runner is that short."""


class ClockWatch:
    """Compares the clock with the monotonic one from call to call."""

    def __init__(self, now: float, monotonic: Callable[[], float]) -> None:
        """Args: now, monotonic: seconds."""
        self._monotonic = monotonic
        self._difference = now - monotonic()

    def jump_seconds(self, now: float) -> float:
        """Return by how much the clock was set since the last call that returned it, 0 for less than 5 s.

        Args: now: the time of the clock; the next call returns a jump that comes after it was read.
        """
        difference = now - self._monotonic()
        jump = difference - self._difference
        if abs(jump) < JUMP_SECONDS:
            return 0.0
        self._difference = difference
        return jump
