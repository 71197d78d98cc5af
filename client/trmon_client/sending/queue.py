"""The bounded queue between the trainer's thread, which puts messages, and the encoder's."""

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
    """A message that is built off the trainer's thread, from the process' identity and the losses so far.

    `size_bytes` is the approximate memory that it holds until then.
    """

    build: Callable[[Identity, wire.Losses], wire.Message]
    size_bytes: int = 512


class MessageQueue:
    """A bounded queue whose `put` never waits."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._changed = threading.Condition()
        self._messages: deque[PendingMessage] = deque()
        self._size_bytes = 0
        self._is_closed = False

    def put(self, message: PendingMessage) -> bool:
        """Append a message; False when there is no room or the queue is closed."""
        with self._changed:
            is_full = (
                len(self._messages) >= self._limits.queue_reports
                or self._size_bytes + message.size_bytes > self._limits.queue_bytes
            )
            if self._is_closed or is_full:
                return False
            self._messages.append(message)
            self._size_bytes += message.size_bytes
            self._changed.notify()
            return True

    def get(self) -> PendingMessage | None:
        """Wait for the oldest message and return it; None when the queue is closed and empty."""
        with self._changed:
            while not self._messages and not self._is_closed:
                self._changed.wait()
            if not self._messages:
                return None
            message = self._messages.popleft()
            self._size_bytes -= message.size_bytes
            return message

    def close(self, last: PendingMessage | None = None) -> None:
        """Accept only this last message, even without room, and no more; `get` still returns what is queued."""
        with self._changed:
            if last is not None and not self._is_closed:
                self._messages.append(last)
                self._size_bytes += last.size_bytes
            self._is_closed = True
            self._changed.notify()

    def __len__(self) -> int:
        return len(self._messages)
