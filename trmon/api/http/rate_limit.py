"""Limits the request rate with a token bucket per access token, or per address without one, shared among replicas."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from trmon.api.http.auth import caller_name
from trmon.domain.access import Access
from trmon.domain.errors import Overloaded
from trmon.fleet.changes import PeriodicThread

if TYPE_CHECKING:
    from trmon.store.redis import SharedBuckets

MAX_BUCKETS = 10_000


@dataclass(slots=True)
class Bucket:
    """The requests left in a caller's burst at a time."""

    left: float
    at: float


class RateLimit:
    """Token buckets by caller; the least recently used are dropped, which only ever favours the caller.

    With `is_shared`, requests are also counted for `take_spent`, which syncs the buckets with other replicas.
    """

    def __init__(self, *, per_second: float, burst: int, is_shared: bool = False) -> None:
        self._per_second = per_second
        self._burst = burst
        self._is_shared = is_shared
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._spent: Counter[str] = Counter()
        self._lock = Lock()

    def take(self, caller: str, *, now: float) -> float:
        """Take one request from a bucket; return 0.0, or the seconds until a retry can succeed."""
        with self._lock:
            bucket = self._refilled(caller, now=now)
            if bucket.left < 1:
                return (1 - bucket.left) / self._per_second
            bucket.left -= 1
            if self._is_shared:
                self._spent[caller] += 1
            return 0.0

    def charge(self, caller: str, n: int) -> None:
        """Take more requests from a bucket for one that was admitted and cost as much; the debt is at most a burst."""
        with self._lock:
            bucket = self._refilled(caller, now=time.monotonic())
            bucket.left = max(bucket.left - n, -float(self._burst))
            if self._is_shared:
                self._spent[caller] += n

    def check(self, access: Access, *, address: str) -> None:
        """Take one request of a caller, identified by token or address. Errors: Overloaded."""
        wait_seconds = self.take(caller_name(access, address=address), now=time.monotonic())
        if wait_seconds > 0:
            raise Overloaded("too many requests from this caller", retry_after_seconds=wait_seconds)

    def check_failures(self, address: str) -> None:
        """Check that an address may try another token. Errors: Overloaded after many invalid ones.

        Valid tokens cost nothing, because many callers may share one address.
        """
        with self._lock:
            left = self._refilled(_failure_key(address), now=time.monotonic()).left
        if left < 1:
            wait_seconds = (1 - left) / self._per_second
            raise Overloaded("too many invalid tokens from this address", retry_after_seconds=wait_seconds)

    def record_failure(self, address: str) -> None:
        """Count an invalid token from an address."""
        self.take(_failure_key(address), now=time.monotonic())

    def take_spent(self) -> dict[str, int]:
        """Return the requests of each caller since the last call."""
        with self._lock:
            spent, self._spent = self._spent, Counter()
        return spent

    def sync(self, left: Mapping[str, float], *, now: float) -> None:
        """Replace callers' levels by the shared ones, less the requests made in the meantime."""
        with self._lock:
            for caller, level in left.items():
                if caller in self._buckets:
                    self._buckets[caller] = Bucket(level - self._spent[caller], now)

    def _refilled(self, caller: str, *, now: float) -> Bucket:
        """Return a caller's bucket, refilled up to now; the caller holds the lock."""
        bucket = self._buckets.setdefault(caller, Bucket(self._burst, now))
        self._buckets.move_to_end(caller)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._per_second)
        bucket.at = now
        return bucket


def _failure_key(address: str) -> str:
    """Return the bucket key for invalid tokens from an address; no token can have this name."""
    return f"unknown from {address}"


SYNC_SECONDS = 0.1
"""Interval between syncs: each replica may exceed the limit by this much of its rate."""
RETRY_SECONDS = 1.0


def limit_sync(limit: RateLimit, buckets: SharedBuckets, *, on_failure: Callable[[], None]) -> PeriodicThread:
    """Return the thread that syncs a replica's buckets with the shared ones, not started.

    During an outage the replica limits on its own.
    """

    def sync() -> None:
        if spent := limit.take_spent():
            limit.sync(buckets.spend(spent), now=time.monotonic())

    return PeriodicThread(
        "limits",
        sync,
        every_seconds=SYNC_SECONDS,
        retry_seconds=RETRY_SECONDS,
        pause_seconds=0.0,
        on_failure=on_failure,
    )
