"""Rate limits: a token bucket for each token, or for each address where there is none."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock

from trmon.domain.model.access import EVERYTHING, Access
from trmon.domain.model.errors import Overloaded

MAX_BUCKETS = 10_000


@dataclass(slots=True)
class Bucket:
    """What is left of a caller's burst, as of a time."""

    left: float
    at: float


class RateLimit:
    """Token buckets by caller; the least recently seen are forgotten, which only ever favours the caller.

    `is_shared` says that somebody asks now and then what was spent, to settle it with other replicas.
    """

    def __init__(self, *, per_second: float, burst: int, is_shared: bool = False) -> None:
        self._per_second = per_second
        self._burst = burst
        self._is_shared = is_shared
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()
        self._spent: Counter[str] = Counter()
        self._lock = Lock()

    def take(self, caller: str, *, now: float) -> float:
        """Take one request; return 0.0, or the seconds after which it may come again."""
        with self._lock:
            bucket = self._filled(caller, now=now)
            if bucket.left < 1:
                return (1 - bucket.left) / self._per_second
            bucket.left -= 1
            if self._is_shared:
                self._spent[caller] += 1
            return 0.0

    def check(self, access: Access, *, address: str) -> None:
        """Take one request of a caller, known by its token, else by its address. Errors: Overloaded."""
        wait_seconds = self.take(access.name if access != EVERYTHING else address, now=time.monotonic())
        if wait_seconds > 0:
            raise Overloaded("too many requests from this caller", retry_after_seconds=wait_seconds)

    def admit(self, address: str) -> None:
        """Let somebody from an address show a token that is to be looked up. Errors: Overloaded after many wrong ones.

        Right ones cost nothing: many callers may come by way of one address.
        """
        with self._lock:
            left = self._filled(_strangers(address), now=time.monotonic()).left
        if left < 1:
            wait_seconds = (1 - left) / self._per_second
            raise Overloaded("too many wrong tokens from this address", retry_after_seconds=wait_seconds)

    def refused(self, address: str) -> None:
        """Note that somebody from an address was not known."""
        self.take(_strangers(address), now=time.monotonic())

    def spent(self) -> dict[str, int]:
        """Return how many requests each caller made since this was last asked."""
        with self._lock:
            spent, self._spent = self._spent, Counter()
        return spent

    def settle(self, left: Mapping[str, float], *, now: float) -> None:
        """Take over what all replicas together have left of callers' buckets, but for what was spent meanwhile."""
        with self._lock:
            for caller, level in left.items():
                if caller in self._buckets:
                    self._buckets[caller] = Bucket(level - self._spent[caller], now)

    def _filled(self, caller: str, *, now: float) -> Bucket:
        """Return a caller's bucket with what has flowed into it by now; to be called under the lock."""
        bucket = self._buckets.setdefault(caller, Bucket(self._burst, now))
        self._buckets.move_to_end(caller)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._per_second)
        bucket.at = now
        return bucket


def _strangers(address: str) -> str:
    """Return the caller that stands for all from an address whom nobody knows; no token has such a name."""
    return f"unknown from {address}"
