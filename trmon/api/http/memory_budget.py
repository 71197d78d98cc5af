"""Limits the memory of requests in progress, and estimates when a refused request should retry."""

from __future__ import annotations

import time

from trmon.domain.model.errors import Overloaded

MEASURE_SECONDS = 1.0
"""How long released bytes are counted before they become a rate."""
MAX_RETRY_SECONDS = 60.0


class MemoryBudget:
    """Counts the bytes of bodies in memory against a limit, and how fast they are released; for the event loop only."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._released = 0
        self._measured_since = time.monotonic()
        self._per_second = 0.0

    def reserve(self, n_bytes: int) -> None:
        """Reserve bytes; always possible if nothing else is reserved. Errors: Overloaded, with nothing reserved."""
        if self._bytes and self._bytes + n_bytes > self._max_bytes:
            seconds = self._bytes / self._per_second if self._per_second else 1.0
            raise Overloaded(
                f"{self._bytes} bytes of requests wait for the database, the limit is {self._max_bytes}; "
                "TRMON_MAX_HELD_BYTES raises it",
                retry_after_seconds=min(max(seconds, 1.0), MAX_RETRY_SECONDS),
            )
        self._bytes += n_bytes

    def release(self, n_bytes: int) -> None:
        """Release reserved bytes."""
        self._bytes -= n_bytes
        self._released += n_bytes
        now = time.monotonic()
        if now - self._measured_since >= MEASURE_SECONDS:
            self._per_second = self._released / (now - self._measured_since)
            self._released, self._measured_since = 0, now


class Reservation:
    """The bytes that one request reserves until it ends."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self._bytes = 0

    def grow(self, n_bytes: int) -> None:
        """Raise the reservation to a total. Errors: Overloaded."""
        if n_bytes > self._bytes:
            self._budget.reserve(n_bytes - self._bytes)
            self._bytes = n_bytes

    def end(self) -> None:
        """Release the reservation."""
        self._budget.release(self._bytes)
        self._bytes = 0
