"""Syncs rate limits between replicas on a background thread; no request waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Event, Thread
from typing import Protocol

from trmon.api.http.rate_limit import RateLimit
from trmon.domain.model.errors import NotReady

SYNC_SECONDS = 0.1
"""Interval between syncs: each replica may exceed the limit by this much of its rate."""
RETRY_SECONDS = 1.0


class SharedBucketStore(Protocol):
    """Buckets that all replicas share."""

    def spend(self, spent: Mapping[str, int]) -> dict[str, float]:
        """Take requests from the buckets of callers; return what is left in each. Errors: NotReady."""

    def close(self) -> None:
        """Close the connection."""


class RateLimitSync:
    """A thread that syncs a replica's buckets with the shared ones; during an outage the replica limits on its own."""

    def __init__(self, limit: RateLimit, buckets: SharedBucketStore, *, on_failure: Callable[[], None]) -> None:
        self._limit = limit
        self._buckets = buckets
        self._on_failure = on_failure
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="trmon-limits", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Stop the thread and close the connection."""
        self._stopping.set()
        self._thread.join()
        self._buckets.close()

    def _run(self) -> None:
        while not self._stopping.wait(SYNC_SECONDS):
            spent = self._limit.take_spent()
            if not spent:
                continue
            try:
                self._limit.sync(self._buckets.spend(spent), now=time.monotonic())
            except NotReady:
                self._on_failure()
                self._stopping.wait(RETRY_SECONDS)
