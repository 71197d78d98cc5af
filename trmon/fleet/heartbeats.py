"""Heartbeats of processes: sent where work makes progress, and watched by the parent, which restarts a hung child."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone

from trmon.domain.health_check import HUNG_SECONDS

BEAT_SECONDS = 1.0
"""Shortest time between two beats that are sent; an idle worker beats as often."""
START_SECONDS = 120.0
"""How long a process may take until its first beat, on a busy machine."""
MAX_TICK_SECONDS = 2.0
RESTART_SECONDS = 1.0
"""Shortest time between two starts of the same command."""
EARLY_RESTARTS = 3
"""How many restarts in a row have no further delay."""
MAX_DELAY_SECONDS = 60.0
STABLE_SECONDS = 300.0
"""A process that has run for so long ends the row of restarts."""


class Heartbeat:
    """Records when work last made progress; `beat` belongs to one thread, `age_seconds` to any."""

    def __init__(
        self, send: Callable[[], object] = lambda: None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Args: send: tells the parent of a beat, once a second at most; clock: seconds, monotonic."""
        self._send = send
        self._clock = clock
        self._beaten_at = clock()
        self._sent_at = -math.inf

    def beat(self) -> None:
        """Record progress; cheap enough for each row of a fold."""
        self._beaten_at = now = self._clock()
        if now - self._sent_at >= BEAT_SECONDS:
            self._sent_at = now
            self._send()

    @property
    def age_seconds(self) -> float:
        """How long ago the last beat was; before the first one, how long ago this object was made."""
        return self._clock() - self._beaten_at

    def wait_for(self, done: Future[None], *, timeout_seconds: float) -> None:
        """Beat until another process has done something: waiting for it is not hanging. Errors: its own, NotDone."""
        until = self._clock() + timeout_seconds
        while True:
            self.beat()
            try:
                return done.result(min(BEAT_SECONDS, max(0.0, until - self._clock())))
            except NotDone:
                if done.done() or self._clock() >= until:
                    raise


class Watchdog:
    """Counts how long a child has been silent while its parent ran.

    Each tick counts for 2 s at most: a machine that was suspended, or a parent that was stopped or starved, is no
    silence of the child.
    """

    def __init__(self, *, hung_seconds: float = HUNG_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._hung_seconds = hung_seconds
        self._limit_seconds = max(START_SECONDS, hung_seconds)
        self._clock = clock
        self._ticked_at = clock()
        self._silent_seconds = 0.0

    def heard(self) -> None:
        """Note a beat of the child."""
        self._silent_seconds, self._limit_seconds = 0.0, self._hung_seconds

    def tick(self, *, is_listening: bool = True) -> bool:
        """Count the time since the last call, and return whether the child is hung.

        Args: is_listening: False while beats wait to be read.
        """
        former, self._ticked_at = self._ticked_at, self._clock()
        elapsed_seconds = min(self._ticked_at - former, MAX_TICK_SECONDS)
        self._silent_seconds = self._silent_seconds + elapsed_seconds if is_listening else 0.0
        return self._silent_seconds >= self._limit_seconds


class RestartDelay:
    """How long to wait before a command that has ended is started again: longer each time after three in a row."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started_at = -math.inf
        self._not_before = -math.inf
        self._n_restarts = 0

    def started(self) -> None:
        """Note a start."""
        self._started_at = self._clock()

    def ended(self) -> None:
        """Note an end that nobody asked for."""
        now = self._clock()
        self._n_restarts = 0 if now - self._started_at >= STABLE_SECONDS else self._n_restarts + 1
        late = self._n_restarts - EARLY_RESTARTS
        delay_seconds = min(2.0**late, MAX_DELAY_SECONDS) if late > 0 else 0.0
        self._not_before = now + delay_seconds

    @property
    def seconds(self) -> float:
        """Zero or less: start it now."""
        return max(self._not_before, self._started_at + RESTART_SECONDS) - self._clock()
