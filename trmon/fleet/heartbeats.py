"""Heartbeats of processes: sent where work makes progress, and watched by the parent, which restarts a hung child."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone

BEAT_SECONDS = 1.0
"""Shortest time between two beats that are sent; an idle worker beats as often."""
HUNG_SECONDS = 30.0
"""A process that has not beaten for so long is hung: no step of a pass takes that long."""


class Heartbeat:
    """Records when work last made progress; `beat` belongs to one thread, `age_seconds` to any."""

    def __init__(
        self, send: Callable[[], object] = lambda: None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Args: send: tells the parent of a beat, once a second at most; clock: seconds, monotonic."""
        self._send = send
        self._clock = clock
        self._beaten_at = clock()
        self._sent_at = -BEAT_SECONDS

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
