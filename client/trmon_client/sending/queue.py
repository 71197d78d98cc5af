"""The bounded queue between the trainer's thread, which puts messages, and the encoder's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

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
    """A bounded queue of one reader, whose `put` never waits.

    `put` and `close` may be called by several threads, and by a signal handler in the middle of either.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # It wakes the reader in 6 us where a Condition takes 16.
        self._messages: SimpleQueue[PendingMessage | None] = SimpleQueue()
        self._lock = threading.RLock()
        self._n_put = self._put_bytes = 0
        # Written by the reader alone, which need not wait for the lock.
        self._n_read = self._read_bytes = 0
        self._is_closed = False
        self._is_read_out = False

    def put(self, message: PendingMessage) -> bool:
        """Append a message; False when there is no room or the queue is closed."""
        with self._lock:
            is_full = (
                len(self) >= self._limits.queue_reports
                or self._put_bytes - self._read_bytes + message.size_bytes > self._limits.queue_bytes
            )
            if self._is_closed or is_full:
                return False
            self._append(message)
            return True

    def get(self) -> PendingMessage | None:
        """Wait for the oldest message and return it; None when the queue is closed and empty."""
        message = None if self._is_read_out else self._messages.get()
        if message is None:
            self._is_read_out = True
            return None
        self._n_read += 1
        self._read_bytes += message.size_bytes
        return message

    def close(self, last: PendingMessage | None = None) -> None:
        """Accept only this last message, even without room, and no more; `get` still returns what is queued."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            if last is not None:
                self._append(last)
            self._messages.put(None)

    def __len__(self) -> int:
        return self._n_put - self._n_read

    def _append(self, message: PendingMessage) -> None:
        self._n_put += 1
        self._put_bytes += message.size_bytes
        self._messages.put(message)
