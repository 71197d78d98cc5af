"""The edge: where an expected error, from a middleware or a route, becomes its answer."""

from __future__ import annotations

import time

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trmon.app.http import problems

log = structlog.get_logger(__name__)


class Edge:
    """Answers expected errors as problems; everything else passes on to the server's own 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_at, status = time.perf_counter(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except problems.EXPECTED as error:
            if status:
                raise
            await problems.answer(error)(scope, receive, watched)
        seconds = round(time.perf_counter() - began_at, 4)
        log.debug("answered", method=scope["method"], path=scope["path"], status=status, seconds=seconds)
