"""What requests hold in memory until they are answered, and when those that find no room may come again."""

from __future__ import annotations

import time

from trmon.domain.model.errors import Overloaded

MEASURED_SECONDS = 1.0
"""How long bytes that are let go of are counted before they become a rate."""
LONGEST_SECONDS = 60.0


class MemoryBudget:
    """Bytes of bodies in memory, at most so many, and how fast they go; used on the event loop alone."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._let_go = 0
        self._since = time.monotonic()
        self._per_second = 0.0

    def take(self, n_bytes: int) -> None:
        """Hold bytes. Errors: Overloaded, with none of them held; a body that finds nothing else there always fits."""
        if self._bytes and self._bytes + n_bytes > self._max_bytes:
            seconds = self._bytes / self._per_second if self._per_second else 1.0
            raise Overloaded(
                f"{self._bytes} bytes of requests wait for the database, at most {self._max_bytes} may; "
                "TRMON_MAX_HELD_BYTES raises it",
                retry_after_seconds=min(max(seconds, 1.0), LONGEST_SECONDS),
            )
        self._bytes += n_bytes

    def let_go(self, n_bytes: int) -> None:
        """Hold bytes no more."""
        self._bytes -= n_bytes
        self._let_go += n_bytes
        now = time.monotonic()
        if now - self._since >= MEASURED_SECONDS:
            self._per_second = self._let_go / (now - self._since)
            self._let_go, self._since = 0, now


class Reservation:
    """What one request holds, until its end."""

    def __init__(self, held: MemoryBudget) -> None:
        self._held = held
        self._bytes = 0

    def grow(self, n_bytes: int) -> None:
        """Hold so many bytes in all. Errors: Overloaded."""
        if n_bytes > self._bytes:
            self._held.take(n_bytes - self._bytes)
            self._bytes = n_bytes

    def end(self) -> None:
        """Hold nothing more."""
        self._held.let_go(self._bytes)
        self._bytes = 0
