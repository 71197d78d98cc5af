"""Finds the runs whose messages other processes have stored, by polling the newest ids."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from trmon.store.repositories.new_messages import MessageCursor, MessageKind, NewMessage

OVERLAP_SECONDS = 3.0
"""How far each poll reads back before the last one: nearly every transaction of that age was visible to it."""
FULL_POLL_WINDOW_SECONDS = 60.0
"""How far a full poll reads back: longer than any transaction lasts."""
FULL_POLL_EVERY_SECONDS = 15.0
MAX_OPEN_IDS = 10_000
"""How many ids open transactions may hold at the first poll."""


class NewMessageSource(Protocol):
    """The part of the store that finds new messages."""

    def newest(self) -> MessageCursor:
        """Return the newest ids."""

    def after(self, cursor: MessageCursor, /) -> list[NewMessage]:
        """Return the newest message of each run and kind with an id beyond a mark."""


class ReportPoller:
    """Reads ids beyond a mark that is old enough for everything before it to be visible; reports each message once."""

    def __init__(self, new_messages: NewMessageSource, *, clock: Callable[[], float]) -> None:
        """Args: clock: seconds, monotonic."""
        self._new_messages = new_messages
        self._clock = clock
        self._marks: deque[tuple[float, MessageCursor]] = deque()
        self._full_poll_at = clock()
        self._seen: dict[tuple[int, MessageKind], int] = {}

    def poll(self) -> set[int]:
        """Return the runs with a message that no earlier poll has found."""
        now, newest = self._clock(), self._new_messages.newest()
        if not self._marks:
            self._marks.append((now, {kind: max(0, id_ - MAX_OPEN_IDS) for kind, id_ in newest.items()}))
        found = self._new_messages.after(self._start_mark(now))
        new = {message.run_id for message in found if message.id > self._seen.get((message.run_id, message.kind), 0)}
        self._seen.update({(message.run_id, message.kind): message.id for message in found})
        self._marks.append((now, newest))
        while now - self._marks[1][0] >= FULL_POLL_WINDOW_SECONDS:
            self._marks.popleft()
        return new

    def _start_mark(self, now: float) -> MessageCursor:
        """Return a mark a few seconds before the last poll or, for a full poll, the oldest one."""
        oldest = self._marks[0][1]
        if now - self._full_poll_at >= FULL_POLL_EVERY_SECONDS:
            self._full_poll_at = now
            self._seen = {key: id_ for key, id_ in self._seen.items() if id_ > oldest[key[1]]}
            return oldest
        polled_at = self._marks[-1][0]
        return next((mark for at, mark in reversed(self._marks) if polled_at - at >= OVERLAP_SECONDS), oldest)
