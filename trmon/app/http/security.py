"""Security of the browser's side: response headers, the Host allow-list, and refusal of cross-site writes."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trmon.domain.errors import Forbidden

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
SAME_SITES = frozenset({"same-origin", "none"})


class SecurityHeaders:
    """Puts the security headers on every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        await self._app(scope, receive, secured)


class KnownHosts:
    """Refuses a Host the service does not go by, so that a foreign name resolving here reaches nothing."""

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str] | None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._hosts is not None:
            host = _without_port(Headers(scope=scope).get("host", ""))
            if host not in self._hosts:
                raise Forbidden(f"the host {host[:64]!r} is not answered here; TRMON_ALLOW_HOSTS adds it")
        await self._app(scope, receive, send)


class SameSite:
    """Refuses what another site's page makes a browser write here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS and _is_cross_site(Headers(scope=scope)):
            raise Forbidden("a page of another site may not write here")
        await self._app(scope, receive, send)


def _is_cross_site(headers: Headers) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None and site not in SAME_SITES:
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host
