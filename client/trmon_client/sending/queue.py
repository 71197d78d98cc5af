"""The outbox: where the trainer's thread leaves drafts, and the only thing it shares with the sender's."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from trmon_client.config.limits import Limits
from trmon_client.core import wire
from trmon_client.process.identity import Identity


@dataclass(frozen=True, slots=True)
class PendingMessage:
    """A message still to be built, off the trainer's thread, from who speaks and what was lost so far.

    `size_bytes` is about what it holds meanwhile.
    """

    build: Callable[[Identity, wire.Losses], wire.Message]
    size_bytes: int = 512


class MessageQueue:
    """A bounded queue whose `put` never waits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._changed = threading.Condition()
        self._drafts: deque[PendingMessage] = deque()
        self._size_bytes = 0
        self._is_closed = False

    def put(self, draft: PendingMessage) -> bool:
        """Leave a draft; False when there is no room or the outbox is closed."""
        with self._changed:
            is_full = (
                len(self._drafts) >= self._limits.queue_reports
                or self._size_bytes + draft.size_bytes > self._limits.queue_bytes
            )
            if self._is_closed or is_full:
                return False
            self._drafts.append(draft)
            self._size_bytes += draft.size_bytes
            self._changed.notify()
            return True

    def take(self) -> PendingMessage | None:
        """Return the oldest draft, waiting for one; None when the outbox is closed and empty."""
        with self._changed:
            while not self._drafts and not self._is_closed:
                self._changed.wait()
            if not self._drafts:
                return None
            draft = self._drafts.popleft()
            self._size_bytes -= draft.size_bytes
            return draft

    def close(self, last: PendingMessage | None = None) -> None:
        """Accept no more but the last draft, for which there is always room; what is inside can still be taken."""
        with self._changed:
            if last is not None and not self._is_closed:
                self._drafts.append(last)
                self._size_bytes += last.size_bytes
            self._is_closed = True
            self._changed.notify()

    def __len__(self) -> int:
        return len(self._drafts)
