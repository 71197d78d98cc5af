"""The tail of the stream of events: what other processes have written, heard once and in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from trmon.domain.model.access import EVERYTHING, Access
from trmon.store.repositories.events import StoredEvent

MAX_AT_ONCE = 1000


class EventLog(Protocol):
    """What the tail asks of the store."""

    def after(self, event_id: int, *, access: Access, limit: int) -> list[StoredEvent]:
        """Return the events with a larger id, oldest first."""

    def last_id(self) -> int:
        """Return the id of the newest event."""


class EventFollower:
    """Reads on from where it was; from its making on, nothing is left out."""

    def __init__(self, events: EventLog, *, heard: Callable[[Sequence[StoredEvent]], None]) -> None:
        self._events = events
        self._heard = heard
        self._place = events.last_id()

    def look(self) -> None:
        """Tell what is new. What the listener fails on is told again."""
        while found := self._events.after(self._place, access=EVERYTHING, limit=MAX_AT_ONCE):
            self._heard(found)
            self._place = found[-1].id
            if len(found) < MAX_AT_ONCE:
                break
