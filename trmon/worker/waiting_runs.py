"""The runs that wait for a pass: live ones first, then those that only begin or time out, then history."""

from __future__ import annotations

from enum import Enum

from trmon.domain.messages import NewestMessage

LIVE_SECONDS = 300.0
"""A run is live if its newest report or scalars were sent this recently, by the sender's clock; older ones, and those
without a time, are history: an import, a replay, a spool, or what came while no worker ran."""


class Priority(Enum):
    """Which runs get the time of a round first."""

    LIVE = "live"
    QUIET = "quiet"
    """A run without reports or scalars, or without unread messages."""
    HISTORY = "history"


def is_live(sent_at: float, *, now: float) -> bool:
    """Whether a report or scalars sent at this time are of a trainer that runs now."""
    return now - sent_at <= LIVE_SECONDS


def priority_of(newest: NewestMessage | None, *, now: float) -> Priority:
    """Return the priority of a run by its newest message; None: it has none."""
    if newest is None or newest.sent_at is None:
        return Priority.QUIET
    if is_live(newest.sent_at, now=now):
        return Priority.LIVE
    return Priority.HISTORY if newest.is_unread else Priority.QUIET


class WaitingRuns:
    """Runs by priority, each once, and in the order in which they came. Not thread-safe."""

    def __init__(self) -> None:
        self._priorities: dict[int, Priority] = {}

    def __bool__(self) -> bool:
        return bool(self._priorities)

    def add(self, run_id: int, priority: Priority) -> None:
        """Add a run behind the others of its priority; one that waits keeps its place, unless it becomes live."""
        if priority is Priority.LIVE and self._priorities.get(run_id) is not priority:
            self.remove(run_id)
        self._priorities.setdefault(run_id, priority)

    def of(self, priority: Priority) -> list[int]:
        """Return the runs of a priority, first come first."""
        return [run_id for run_id, known in self._priorities.items() if known is priority]

    def remove(self, run_id: int) -> None:
        """Remove a run, if it waits."""
        self._priorities.pop(run_id, None)
