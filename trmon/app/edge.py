"""The edge: where an expected error, from a middleware or a route, becomes its answer."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trmon.app import problems


class Edge:
    """Answers expected errors as problems; everything else passes on to the server's own 500."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except problems.EXPECTED as error:
            if started:
                raise
            await problems.answer(error)(scope, receive, send)
