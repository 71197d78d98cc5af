"""Rate limits: a token bucket for each token, or for each address where there is none."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from trmon.app.callers import access_of
from trmon.domain.access import EVERYTHING
from trmon.domain.errors import Overloaded

MAX_BUCKETS = 10_000


@dataclass(slots=True)
class Bucket:
    """What is left of a caller's burst, as of a time."""

    left: float
    at: float


class RateLimit:
    """Token buckets by caller; the least recently seen are forgotten, which only ever favours the caller."""

    def __init__(self, *, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = burst
        self._buckets: OrderedDict[str, Bucket] = OrderedDict()

    def take(self, caller: str, *, now: float) -> float:
        """Take one request; return 0.0, or the seconds after which it may come again."""
        bucket = self._buckets.setdefault(caller, Bucket(self._burst, now))
        self._buckets.move_to_end(caller)
        if len(self._buckets) > MAX_BUCKETS:
            self._buckets.popitem(last=False)
        bucket.left = min(self._burst, bucket.left + (now - bucket.at) * self._per_second)
        bucket.at = now
        if bucket.left < 1:
            return (1 - bucket.left) / self._per_second
        bucket.left -= 1
        return 0.0


class RateLimited:
    """Answers 429 with Retry-After to a caller beyond the limit."""

    def __init__(self, app: ASGIApp, *, limit: RateLimit) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        access = access_of(scope)
        if access is not None:
            caller = access.name if access != EVERYTHING else (scope.get("client") or ("",))[0]
            wait_seconds = self._limit.take(caller, now=time.monotonic())
            if wait_seconds > 0:
                raise Overloaded("too many requests from this caller", retry_after_seconds=wait_seconds)
        await self._app(scope, receive, send)
