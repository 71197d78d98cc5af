"""Compression of what is read: histories and the page shrink to a third; what trainers send and hear stays as it is."""

from __future__ import annotations

from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

LEAST_BYTES = 2048
LEVEL = 4
"""Higher ones take twice the time for a few percent."""


class GetCompression:
    """Compresses answers to GET for those who take gzip; streams of events are left alone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressed = GZipMiddleware(app, minimum_size=LEAST_BYTES, compresslevel=LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reads = scope["type"] == "http" and scope["method"] == "GET"
        await (self._compressed if reads else self._app)(scope, receive, send)
