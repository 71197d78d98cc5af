"""Follows the stored events, to learn what other processes have changed: each event once and in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from trmon.domain.model.access import EVERYTHING, Access
from trmon.store.repositories.events import StoredEvent

PAGE_SIZE = 1000


class EventLog(Protocol):
    """The part of the store that reads events."""

    def after(self, event_id: int, /, *, access: Access, limit: int) -> list[StoredEvent]:
        """Return the events with a larger id, oldest first."""

    def last_id(self) -> int:
        """Return the id of the newest event."""


class EventFollower:
    """Passes on every event that is written after it was created."""

    def __init__(self, events: EventLog, *, on_events: Callable[[Sequence[StoredEvent]], None]) -> None:
        self._events = events
        self._on_events = on_events
        self._last_id = events.last_id()

    def poll(self) -> None:
        """Pass on new events; if the listener raises, the next poll passes the same events again."""
        while page := self._events.after(self._last_id, access=EVERYTHING, limit=PAGE_SIZE):
            self._on_events(page)
            self._last_id = page[-1].id
            if len(page) < PAGE_SIZE:
                break
