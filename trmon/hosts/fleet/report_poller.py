"""The lookout: finds the runs of which other processes have taken something in."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from trmon.store.repositories.new_messages import Mark, MessageKind, NewMessage

OVERLAP_SECONDS = 3.0
"""How far each look goes back beyond the last one: what has its ids by then was visible to that one, nearly always."""
SWEEP_SECONDS = 60.0
"""How far a sweep goes back: longer than any transaction lasts."""
SWEEP_EVERY_SECONDS = 15.0
UNDER_WAY = 10_000
"""How many ids transactions may hold that are under way at the first look."""


class NewMessageSource(Protocol):
    """What the lookout asks of the store."""

    def mark(self) -> Mark:
        """Return the newest ids."""

    def after(self, mark: Mark) -> list[NewMessage]:
        """Return the newest message of each run and kind that came after a mark."""


class ReportPoller:
    """Looks at ids beyond a mark that is old enough for all before it to be visible; what came is found once."""

    def __init__(self, arrivals: NewMessageSource, *, clock: Callable[[], float]) -> None:
        """Args: clock: seconds, monotonic."""
        self._arrivals = arrivals
        self._clock = clock
        self._marks: deque[tuple[float, Mark]] = deque()
        self._swept_at = clock()
        self._seen: dict[tuple[int, MessageKind], int] = {}

    def look(self) -> set[int]:
        """Return the runs of which something came that no earlier look has found."""
        now, newest = self._clock(), self._arrivals.mark()
        if not self._marks:
            self._marks.append((now, {kind: max(0, id_ - UNDER_WAY) for kind, id_ in newest.items()}))
        found = self._arrivals.after(self._since(now))
        new = {came.run_id for came in found if came.id > self._seen.get((came.run_id, came.kind), 0)}
        self._seen.update({(came.run_id, came.kind): came.id for came in found})
        self._marks.append((now, newest))
        while now - self._marks[1][0] >= SWEEP_SECONDS:
            self._marks.popleft()
        return new

    def _since(self, now: float) -> Mark:
        """Return the mark of some seconds before the last look and, now and then, the oldest one."""
        oldest = self._marks[0][1]
        if now - self._swept_at >= SWEEP_EVERY_SECONDS:
            self._swept_at = now
            self._seen = {key: id_ for key, id_ in self._seen.items() if id_ > oldest[key[1]]}
            return oldest
        looked_at = self._marks[-1][0]
        return next((mark for at, mark in reversed(self._marks) if looked_at - at >= OVERLAP_SECONDS), oldest)
