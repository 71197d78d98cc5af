"""Sharing of rate limits: what this replica let through is told, and what others did comes back; no request waits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Protocol

from trmon.api.http.rate_limit import RateLimit
from trmon.domain.model.errors import NotReady

SHARE_SECONDS = 0.1
"""How late replicas hear of each other: so much of each one's rate may be let through beyond the limit."""
RETRY_SECONDS = 1.0


class SharedBucketStore(Protocol):
    """What is shared."""

    def spend(self, spent: Mapping[str, int]) -> dict[str, float]:
        """Take requests off the buckets of callers; return what is left in each. Errors: NotReady."""

    def close(self) -> None:
        """Let go of the connection."""


class RateLimitSync:
    """A thread that keeps a replica's buckets and the shared ones together; while those are away, its own count."""

    def __init__(self, limit: RateLimit, buckets: SharedBucketStore, *, failed: Callable[[], None]) -> None:
        self._limit = limit
        self._buckets = buckets
        self._failed = failed
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="trmon-limits", daemon=True)

    def start(self) -> None:
        """Begin to share."""
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._stopping.set()
        self._thread.join()
        self._buckets.close()

    def _run(self) -> None:
        while not self._stopping.wait(SHARE_SECONDS):
            spent = self._limit.spent()
            if not spent:
                continue
            try:
                self._limit.settle(self._buckets.spend(spent), now=time.monotonic())
            except NotReady:
                self._failed()
                self._stopping.wait(RETRY_SECONDS)
