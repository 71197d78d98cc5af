"""Alarms: when the clock asks for each run, so that thousands of sleeping ones cost nothing to watch."""

from __future__ import annotations

import math
from heapq import heappop, heappush


class TimerQueue:
    """The next time of each run, on the server's clock. Not thread-safe."""

    def __init__(self) -> None:
        self._due_at: dict[int, float] = {}
        self._queue: list[tuple[float, int]] = []
        self._queued_at: dict[int, float] = {}

    def arm(self, run_id: int, at: float) -> None:
        """Ring at a time instead of any other; infinity: never."""
        if at == math.inf:
            self.drop(run_id)
            return
        self._due_at[run_id] = at
        self._enqueue(run_id, at)

    def drop(self, run_id: int) -> None:
        """Do not ring for a run."""
        self._due_at.pop(run_id, None)

    def ring(self, now: float) -> set[int]:
        """Return the runs whose time has come; each rings once."""
        rung: set[int] = set()
        while self._queue and self._queue[0][0] <= now:
            at, run_id = heappop(self._queue)
            if self._queued_at.get(run_id) == at:
                del self._queued_at[run_id]
            due_at = self._due_at.get(run_id, math.inf)
            if due_at <= now:
                del self._due_at[run_id]
                rung.add(run_id)
            elif due_at < math.inf:
                self._enqueue(run_id, due_at)
        return rung

    def _enqueue(self, run_id: int, at: float) -> None:
        """A run that is asked for each step is set later and later: it stays queued at its first time till then."""
        if at < self._queued_at.get(run_id, math.inf):
            self._queued_at[run_id] = at
            heappush(self._queue, (at, run_id))
