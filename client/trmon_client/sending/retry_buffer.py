"""The backlog: encoded messages that wait for the service, in memory and, when it is slow or gone, in the spool."""

from __future__ import annotations

import threading
from collections import deque

from trmon_client.config.limits import Limits
from trmon_client.safety.losses import LossCounter, LossReason
from trmon_client.safety.warn_once import WarnOnce
from trmon_client.sending.spool import Spool, fitting_prefix


class RetryBuffer:
    """Keeps messages in order from `add` to `acknowledge`: the ones in flight, then the spool, then memory.

    Memory moves to the spool at half full, and at once while `write_through` holds. Threads may share it.
    """

    def __init__(self, spool: Spool, *, limits: Limits, losses: LossCounter, notices: WarnOnce) -> None:
        self._spool = spool
        self._limits = limits
        self._losses = losses
        self._notices = notices
        self._changed = threading.Condition()
        self._memory: deque[bytes] = deque()
        self._memory_bytes = 0
        self._in_flight: list[bytes] = []
        self._flies_from_spool = False
        self._write_through = False
        self._has_news = False
        self._is_closed = False

    def open(self) -> None:
        """Take over what dead processes of this run left in the spool."""
        with self._changed:
            try:
                self._spool.adopt()
            except OSError as error:
                self._notices.say("adopt", f"cannot read what earlier processes left in the spool ({error})")

    def add(self, message: bytes) -> None:
        """Append a message; it is dropped and counted only if neither memory nor the spool has room."""
        with self._changed:
            self._memory.append(message)
            self._memory_bytes += len(message)
            if self._write_through or self._fills(0.5):
                self._spill()
            if self._fills(1.0):
                self._memory_bytes -= len(self._memory.pop())
                self._losses.count(LossReason.QUEUE_FULL)
            self._announce()

    def take(self, n_messages: int) -> list[bytes]:
        """Return the oldest messages, at most n; the same ones again until they are acknowledged, none once closed."""
        with self._changed:
            if self._is_closed:
                return []
            if not self._in_flight:
                self._take_off(n_messages)
            return self._in_flight[:n_messages]

    def acknowledge(self, n: int) -> None:
        """Forget the first n messages in flight."""
        with self._changed:
            if self._is_closed:
                return
            del self._in_flight[:n]
            if self._flies_from_spool:
                self._spool.advance(n)

    def write_through(self, is_on: bool) -> None:
        """Put every message on disk at once while the service is away; off again when it answers."""
        with self._changed:
            self._write_through = is_on
            if is_on and not self._is_closed:
                if self._spool.is_empty:
                    self._land()
                self._spill()

    def close(self) -> None:
        """Put on disk whatever was not acknowledged; what the disk does not take is lost and counted."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._land()
            self._spill()
            if self._memory:
                self._losses.count(LossReason.SPOOL_ERROR, len(self._memory))
            self._spool.close()

    def wait(self, timeout_seconds: float) -> None:
        """Return when something was added, or `wake` called, since the last wait; at the latest in time."""
        with self._changed:
            if not self._has_news:
                self._changed.wait(timeout_seconds)
            self._has_news = False

    def wake(self) -> None:
        """Let `wait` return."""
        with self._changed:
            self._announce()

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits to be sent; what a closed backlog put on disk waits for another process."""
        with self._changed:
            return self._is_closed or (not (self._in_flight or self._memory) and self._spool.is_empty)

    @property
    def queued(self) -> int:
        """How many messages wait in memory."""
        return len(self._memory) + (0 if self._flies_from_spool else len(self._in_flight))

    @property
    def spooled_bytes(self) -> int:
        """How much waits on disk."""
        with self._changed:
            return self._spool.size_bytes

    def _take_off(self, n_messages: int) -> None:
        size_bytes = self._limits.bundle_bytes
        self._in_flight = self._spool.peek(n_messages=n_messages, size_bytes=size_bytes)
        self._flies_from_spool = bool(self._in_flight)
        if not self._in_flight:
            self._in_flight = fitting_prefix(self._memory, n_messages=n_messages, size_bytes=size_bytes)
            for message in self._in_flight:
                self._memory.popleft()
                self._memory_bytes -= len(message)

    def _fills(self, part: float) -> bool:
        return (
            len(self._memory) > part * self._limits.queue_reports
            or self._memory_bytes > part * self._limits.queue_bytes
        )

    def _announce(self) -> None:
        self._has_news = True
        self._changed.notify_all()

    def _land(self) -> None:
        if not self._flies_from_spool:
            self._memory.extendleft(reversed(self._in_flight))
            self._memory_bytes += sum(map(len, self._in_flight))
            self._in_flight = []

    def _spill(self) -> None:
        try:
            while self._memory:
                self._spool.append(self._memory[0])
                self._memory_bytes -= len(self._memory.popleft())
        except (OSError, ValueError) as error:  # ValueError: a path that the file system cannot spell
            reason = getattr(error, "strerror", None) or error
            self._notices.say("spool", f"cannot write to the spool {self._spool.directory}: {reason}")
