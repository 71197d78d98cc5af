"""A queue of one timer per run, so that thousands of idle runs cost nothing to wait for."""

from __future__ import annotations

import math
from heapq import heappop, heappush


class TimerQueue:
    """The due time of each run, on the server's clock. Not thread-safe."""

    def __init__(self) -> None:
        self._due_at: dict[int, float] = {}
        self._queue: list[tuple[float, int]] = []
        self._queued_at: dict[int, float] = {}

    def schedule(self, run_id: int, at: float) -> None:
        """Set a run's due time in place of the former one; infinity cancels it."""
        if at == math.inf:
            self.cancel(run_id)
            return
        self._due_at[run_id] = at
        self._enqueue(run_id, at)

    def cancel(self, run_id: int) -> None:
        """Remove a run's due time."""
        self._due_at.pop(run_id, None)

    def pop_due(self, now: float) -> set[int]:
        """Return the runs that are due and remove their due times."""
        due: set[int] = set()
        while self._queue and self._queue[0][0] <= now:
            at, run_id = heappop(self._queue)
            if self._queued_at.get(run_id) == at:
                del self._queued_at[run_id]
            due_at = self._due_at.get(run_id, math.inf)
            if due_at <= now:
                del self._due_at[run_id]
                due.add(run_id)
            elif due_at < math.inf:
                self._enqueue(run_id, due_at)
        return due

    def _enqueue(self, run_id: int, at: float) -> None:
        """Queue a run unless it has an earlier entry: a timer that moves at each step keeps one entry until then."""
        if at < self._queued_at.get(run_id, math.inf):
            self._queued_at[run_id] = at
            heappush(self._queue, (at, run_id))
