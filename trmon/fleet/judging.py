"""How far the judging is behind, for probes, /metrics and the page: the worker's heartbeat and the oldest report."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Protocol

from trmon.store.repositories.judging import JudgingProgress

POLL_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingDelay:
    """How long ago a worker made progress, infinite without one, and the age of the oldest report not processed."""

    beat_age_seconds: float
    oldest_unprocessed_seconds: float


class BeatingWorker(Protocol):
    """A worker in this process or in its child."""

    @property
    def beat_age_seconds(self) -> float:
        """How long ago it made progress."""


class JudgingWatch:
    """Polls the database; the ages grow by themselves while it cannot be read. May be read from any thread."""

    def __init__(self, judging: JudgingProgress, *, worker: BeatingWorker | None) -> None:
        """Args: worker: this process's or its child; None if workers are other processes."""
        self._judging = judging
        self._worker = worker
        self._beaten_at = time.monotonic()
        self._oldest_at = math.inf

    def poll(self) -> None:
        """Read the oldest report that no pass has processed, and when the workers of a fleet were last seen."""
        if self._worker is None:
            self._beaten_at = time.monotonic() - (self._judging.beat_age_seconds() or 0.0)
        else:
            self._judging.record_beat(age_seconds=self._worker.beat_age_seconds)
        self._oldest_at = self._judging.oldest_unprocessed_at()

    def delay(self) -> JudgingDelay:
        """Return the delay now."""
        worker = self._worker
        return JudgingDelay(
            beat_age_seconds=time.monotonic() - self._beaten_at if worker is None else worker.beat_age_seconds,
            oldest_unprocessed_seconds=max(0.0, time.time() - self._oldest_at),
        )
