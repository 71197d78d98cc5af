"""Encoded messages that wait for the service, in memory and, while it is slow or unreachable, in the spool."""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress

from trmon_client.config.limits import Limits
from trmon_client.safety.losses import LossCounter, LossReason
from trmon_client.safety.warn_once import WarnOnce
from trmon_client.sending.spool import Spool, fitting_prefix


class RetryBuffer:
    """Keeps messages in order from `add` to `acknowledge`: the ones in flight, then the spool, then memory.

    Messages move from memory to the spool when memory is half full, and at once while `write_through` is on. It is
    thread-safe.
    """

    def __init__(self, spool: Spool, *, limits: Limits, losses: LossCounter, warn_once: WarnOnce) -> None:
        self._spool = spool
        self._limits = limits
        self._losses = losses
        self._warn_once = warn_once
        self._changed = threading.Condition()
        self._memory: deque[bytes] = deque()
        self._memory_bytes = 0
        self._in_flight: list[bytes] = []
        self._is_in_flight_spooled = False
        self._write_through = False
        self._has_changed = False
        self._is_closed = False

    def open(self) -> None:
        """Adopt the spools that dead processes of this run left."""
        with self._changed:
            try:
                self._spool.adopt()
            except OSError as error:
                self._warn_once.warn("adopt", f"cannot read what earlier processes left in the spool ({error})")

    def add(self, message: bytes, *, is_last: bool = False) -> None:
        """Append a message; drop and count it only if neither memory nor the spool has room, and it is not the last."""
        with self._changed:
            self._memory.append(message)
            self._memory_bytes += len(message)
            if self._write_through or self._fills(0.5):
                self._move_to_spool()
            if self._fills(1.0) and not is_last:
                self._memory_bytes -= len(self._memory.pop())
                self._losses.count(LossReason.QUEUE_FULL)
            self._notify()

    def next_bundle(self, n_messages: int) -> list[bytes]:
        """Return the oldest messages, at most n: the same ones until they are acknowledged, and none after `close`."""
        with self._changed:
            if self._is_closed:
                return []
            if not self._in_flight:
                self._load_in_flight(n_messages)
            return self._in_flight[:n_messages]

    def acknowledge(self, n: int) -> None:
        """Remove the first n messages in flight."""
        with self._changed:
            if self._is_closed:
                return
            del self._in_flight[:n]
            if self._is_in_flight_spooled:
                self._spool.advance(n)

    def write_through(self, is_on: bool) -> None:
        """Turn on or off that every message goes to disk at once, as while the service is unreachable."""
        with self._changed:
            self._write_through = is_on
            if is_on and not self._is_closed:
                self._return_in_flight()
                self._move_to_spool()

    def close(self) -> None:
        """Write unacknowledged messages to disk; count those that cannot be written as losses."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._return_in_flight()
            self._move_to_spool()
            if self._memory:
                self._losses.count(LossReason.SPOOL_ERROR, len(self._memory))
                text = f"{len(self._memory)} messages are lost: the service did not take them, and the spool cannot"
                self._warn_once.warn("lost", text)
            self._spool.close()

    def wait(self, timeout_seconds: float) -> None:
        """Wait until a message is added or `wake` is called, also since the last wait, or until the timeout."""
        with self._changed:
            if not self._has_changed:
                self._changed.wait(timeout_seconds)
            self._has_changed = False

    def wake(self) -> None:
        """Make `wait` return."""
        with self._changed:
            self._notify()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to send; messages that `close` wrote to disk are for another process."""
        with self._changed:
            return self._is_closed or (not (self._in_flight or self._memory) and self._spool.is_empty)

    @property
    def queued(self) -> int:
        """The number of messages in memory."""
        return len(self._memory) + (0 if self._is_in_flight_spooled else len(self._in_flight))

    @property
    def spooled_bytes(self) -> int:
        """The size of the messages on disk."""
        with self._changed:
            return self._spool.size_bytes

    @property
    def _hint(self) -> str:
        return (
            f"training continues, {self._limits.queue_reports} messages can wait in memory, and others are lost and "
            "counted until there is space; or set TRMON_SPOOL_DIR to a folder that can be written"
        )

    def _load_in_flight(self, n_messages: int) -> None:
        size_bytes = self._limits.bundle_bytes
        self._in_flight = self._spool.peek(n_messages=n_messages, size_bytes=size_bytes)
        self._is_in_flight_spooled = bool(self._in_flight)
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

    def _notify(self) -> None:
        self._has_changed = True
        self._changed.notify_all()

    def _return_in_flight(self) -> None:
        if self._is_in_flight_spooled or not self._in_flight:
            return
        if not self._spool.is_empty:
            with suppress(OSError):
                self._spool.prepend(self._in_flight)
                self._in_flight = []
                return
            if not self._is_closed:
                return  # in flight they stay before what is spooled
        self._memory.extendleft(reversed(self._in_flight))
        self._memory_bytes += sum(map(len, self._in_flight))
        self._in_flight = []

    def _move_to_spool(self) -> None:
        try:
            while self._memory:
                self._spool.append(self._memory[0])
                self._memory_bytes -= len(self._memory.popleft())
        except (OSError, ValueError) as error:  # ValueError: a path that the file system does not accept
            reason = getattr(error, "strerror", None) or error
            self._warn_once.warn("spool", f"cannot write to the spool {self._spool.directory}: {reason}; {self._hint}")
