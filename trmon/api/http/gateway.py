"""Checks every request, answers expected errors as problems, HEAD without a body, and compresses responses to GET."""

from __future__ import annotations

import asyncio
import time

import structlog
from prometheus_client import Counter
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trmon.api.http import problems
from trmon.api.http.auth import HEADERS, SAFE_METHODS, authenticate, caller_name, check_host, check_site, client_address
from trmon.api.http.body import BodyMiddleware
from trmon.api.http.rate_limit import RateLimit
from trmon.domain.errors import Unauthenticated


def answer_head(scope: Scope, send: Send) -> tuple[Scope, Send]:
    """Return the scope and the send of a GET whose response ends after its headers, even if its body never would."""
    has_ended = False

    async def send_headers(message: Message) -> None:
        nonlocal has_ended
        if message["type"] == "http.response.start":
            await send(message)
        elif not has_ended:
            has_ended = True
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return {**scope, "method": "GET"}, send_headers


log = structlog.get_logger(__name__)

_SECURITY = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


STALL_SECONDS = 0.1
CHECK_SECONDS = 0.02
WATCH_SECONDS = 1.0
LOG_SECONDS = 10.0
"""Shortest time between two lines about stalls; the metric counts them all."""


class LoopWatch:
    """Counts and logs when the event loop stood still for over 100 ms, while requests come and for a second after."""

    def __init__(self) -> None:
        self._watch_until = self._due_at = self._log_at = 0.0
        self._is_watching = False

    def request_received(self, stalls: Counter) -> None:
        """Watch from now on. Args: stalls: counts what is found."""
        loop = asyncio.get_running_loop()
        self._watch_until = loop.time() + WATCH_SECONDS
        if not self._is_watching:
            self._is_watching = True
            self._check_later(loop, stalls)

    def _check_later(self, loop: asyncio.AbstractEventLoop, stalls: Counter) -> None:
        self._due_at = loop.time() + CHECK_SECONDS
        loop.call_at(self._due_at, self._check, loop, stalls)

    def _check(self, loop: asyncio.AbstractEventLoop, stalls: Counter) -> None:
        now = loop.time()
        late_seconds = now - self._due_at
        if late_seconds > STALL_SECONDS:
            stalls.inc()
        if late_seconds > STALL_SECONDS and now >= self._log_at:
            self._log_at = now + LOG_SECONDS
            log.warning("event_loop_stalled", seconds=round(late_seconds, 3))
        self._is_watching = now < self._watch_until
        if self._is_watching:
            self._check_later(loop, stalls)


class Gateway:
    """Checks host, site, token, rate and body of each request, and answers expected errors as problems.

    It is one middleware, because a middleware for each check costs more than the checks. Every response gets the
    security headers; unexpected errors pass on to the server's own 500.
    """

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str] | None, limit: RateLimit, bodies: BodyMiddleware) -> None:
        self._app = app
        self._hosts = hosts
        self._limit = limit
        self._bodies = bodies
        self._loop_watch = LoopWatch()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_at, status = time.perf_counter(), 0

        async def send_secured(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_SECURITY]
            await send(message)

        try:
            await self._pass_on(scope, receive, send_secured)
        except problems.EXPECTED as error:
            if status:
                raise
            await problems.problem_response(error)(scope, receive, send_secured)
        seconds = round(time.perf_counter() - started_at, 4)
        log.debug("request_answered", method=scope["method"], path=scope["path"], status=status, seconds=seconds)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it on. Errors: Forbidden, Unauthenticated, Overloaded; those of its body."""
        self._loop_watch.request_received(scope["app"].state.components.counters.loop_stalls)
        # Of a repeated header the first one counts.
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
        check_host(headers, hosts=self._hosts)
        check_site(headers, method=scope["method"])
        address = client_address(scope)
        try:
            access = await authenticate(scope, headers, before_lookup=lambda: self._limit.check_failures(address))
        except Unauthenticated:
            self._limit.record_failure(address)
            raise
        if access is not None:
            self._limit.check(access, address=address)
        if scope["method"] == "HEAD":
            scope, send = answer_head(scope, send)
        if access is None or scope["method"] in SAFE_METHODS:
            await self._app(scope, receive, send)
        else:
            caller = caller_name(access, address=address)
            await self._bodies.call(self._app, scope, receive, send, headers=headers, caller=caller)


MIN_BYTES = 2048
LEVEL = 4
"""Higher levels take twice the time and save a few percent."""


class GetCompression:
    """Compresses responses to GET for clients that accept gzip, except event streams."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressed = GZipMiddleware(app, minimum_size=MIN_BYTES, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_get = scope["type"] == "http" and scope["method"] == "GET"
        await (self._compressed if is_get else self._app)(scope, receive, send)
