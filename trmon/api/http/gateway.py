"""The edge: what every request passes on its way in, and where an expected error becomes its answer."""

from __future__ import annotations

import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trmon.api.http import problems
from trmon.api.http.auth import known_access
from trmon.api.http.body import WholeBody
from trmon.api.http.browser_security import HEADERS, SAFE_METHODS, check_host, check_site
from trmon.api.http.dependencies import client_address
from trmon.api.http.rate_limit import RateLimit
from trmon.domain.model.errors import Unauthenticated

log = structlog.get_logger(__name__)

_SECURITY = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]


class Gateway:
    """Lets in who may come in, with the body whole, and answers expected errors as problems.

    All of it is one layer: a layer for each check costs more than the checks. Every answer gets the security headers;
    unexpected errors pass on to the server's own 500.
    """

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str] | None, limit: RateLimit, bodies: WholeBody) -> None:
        self._app = app
        self._hosts = hosts
        self._limit = limit
        self._bodies = bodies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_at, status = time.perf_counter(), 0

        async def secured(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_SECURITY]
            await send(message)

        try:
            await self._enter(scope, receive, secured)
        except problems.EXPECTED as error:
            if status:
                raise
            await problems.problem_response(error)(scope, receive, secured)
        seconds = round(time.perf_counter() - began_at, 4)
        log.debug("answered", method=scope["method"], path=scope["path"], status=status, seconds=seconds)

    async def _enter(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on that is in order. Errors: Forbidden, Unauthenticated, Overloaded; those of its body."""
        headers = _first_values(scope)
        check_host(headers, hosts=self._hosts)
        check_site(headers, method=scope["method"])
        address = client_address(scope)
        try:
            access = await known_access(scope, headers, admit=lambda: self._limit.admit(address))
        except Unauthenticated:
            self._limit.refused(address)
            raise
        if access is not None:
            self._limit.check(access, address=address)
        if scope["method"] in SAFE_METHODS:
            await self._app(scope, receive, send)
        else:
            await self._bodies.hand(self._app, scope, receive, send, headers=headers)


def _first_values(scope: Scope) -> dict[str, str]:
    """Return the headers of a request, of each the first that came."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}
