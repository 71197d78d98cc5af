"""Limits the memory of requests in progress, shares it among callers, and estimates when a refused one should retry."""

from __future__ import annotations

import time
from collections import Counter

from trmon.domain.model.errors import Overloaded

MEASURE_SECONDS = 1.0
"""How long released bytes are counted before they become a rate."""
MAX_RETRY_SECONDS = 60.0


class MemoryBudget:
    """Counts the bytes of bodies in memory by caller, and how fast they are released; for the event loop only.

    A caller may hold at most as many bytes as stay free: one caller alone half of the limit, n callers 1/(n + 1) each.
    So no number of callers can use it up, and a caller who comes later always gets a share.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._bytes_of: Counter[str] = Counter()
        self._released = 0
        self._measured_since = time.monotonic()
        self._per_second = 0.0

    def reserve(self, n_bytes: int, *, caller: str, already_bytes: int = 0) -> None:
        """Reserve bytes for a request; always possible if no other request has reserved any.

        Args: already_bytes: what the same request has reserved before.
        Errors: Overloaded, with nothing reserved.
        """
        held_bytes = self._bytes_of[caller]
        free_bytes = self._max_bytes - self._bytes
        if self._bytes > already_bytes and held_bytes + n_bytes > free_bytes - n_bytes:
            seconds = self._bytes / self._per_second if self._per_second else 1.0
            raise Overloaded(
                f"{held_bytes} bytes of this caller's requests wait, and {free_bytes} of {self._max_bytes} are free; a "
                "caller may hold as many as stay free; TRMON_MAX_HELD_BYTES raises the limit",
                retry_after_seconds=min(max(seconds, 1.0), MAX_RETRY_SECONDS),
            )
        self._bytes += n_bytes
        self._bytes_of[caller] += n_bytes

    def release(self, n_bytes: int, *, caller: str) -> None:
        """Release a caller's reserved bytes."""
        self._bytes -= n_bytes
        self._bytes_of[caller] -= n_bytes
        if not self._bytes_of[caller]:
            del self._bytes_of[caller]
        self._released += n_bytes
        now = time.monotonic()
        if now - self._measured_since >= MEASURE_SECONDS:
            self._per_second = self._released / (now - self._measured_since)
            self._released, self._measured_since = 0, now


class Reservation:
    """The bytes that one request reserves until it ends."""

    def __init__(self, budget: MemoryBudget, *, caller: str) -> None:
        self._budget = budget
        self._caller = caller
        self._bytes = 0

    def grow(self, n_bytes: int) -> None:
        """Raise the reservation to a total. Errors: Overloaded."""
        if n_bytes > self._bytes:
            self._budget.reserve(n_bytes - self._bytes, caller=self._caller, already_bytes=self._bytes)
            self._bytes = n_bytes

    def end(self) -> None:
        """Release the reservation."""
        self._budget.release(self._bytes, caller=self._caller)
        self._bytes = 0
