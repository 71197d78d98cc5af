"""Who calls and what they may do: tokens and scopes; and what a browser may: headers, hosts and cross-site writes."""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request
from starlette.types import Scope as Connection

from trmon.config.settings import Settings
from trmon.domain.access import EVERYTHING, Access, Scope, Token
from trmon.domain.errors import Forbidden, NotReady, Unauthenticated
from trmon.store.repositories.tokens import Tokens

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


def check_host(headers: Mapping[str, str], *, hosts: frozenset[str] | None) -> None:
    """Refuse an unknown Host header, so that a foreign name that resolves to this service is not answered.

    Args: hosts: names in lower case, or None, which accepts any.
    Errors: Forbidden.
    """
    if hosts is None:
        return
    host = _without_port(headers.get("host", "").lower())
    if host not in hosts:
        raise Forbidden(f"the host {host[:64]!r} is not answered here; TRMON_ALLOW_HOSTS adds it")


def check_site(headers: Mapping[str, str], *, method: str) -> None:
    """Refuse writes that another site's page sends through a browser. Errors: Forbidden."""
    if method not in SAFE_METHODS and _is_cross_site(headers):
        raise Forbidden("a page of another site may not write here")


def _is_cross_site(headers: Mapping[str, str]) -> bool:
    site = headers.get("sec-fetch-site")
    if site is not None and site not in SAME_SITES:
        return True
    origin = headers.get("origin")
    return origin is not None and _host_of(origin).lower() != headers.get("host", "").lower()


def _host_of(origin: str) -> str:
    """Return the host and port of an origin; the origin itself if it is not a valid URL, which matches no host."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return origin


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() else host


GUARDED_PATHS = ("/api/", "/metrics")
PROXY_HEADERS = ("forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""Headers that proxies add: such a request may come from another machine, whatever its address."""
CACHE_SECONDS = 2.0
"""How long a look-up is cached: a token that another process revokes is refused after this time at the latest."""
MAX_CACHED = 10_000


class Authenticator:
    """Authenticates callers by their tokens; until the first one is created, an unexposed service allows everything."""

    def __init__(self, tokens: Tokens, *, is_exposed: bool) -> None:
        self._tokens = tokens
        self._is_exposed = is_exposed
        self._cache: dict[str | None, tuple[Token | bool | None, float]] = {}

    async def access(
        self, headers: Mapping[str, str], *, now: float, before_lookup: Callable[[], None] = lambda: None
    ) -> Access:
        """Return what a caller with these headers may do. Errors: Unauthenticated.

        Args: headers: by lower-case name; before_lookup: called before a token that is not cached is looked up; may
        raise.
        """
        authorization = headers.get("authorization")
        if authorization is None:
            return await self._without_token(headers, now=now)
        kind, _, secret = authorization.partition(" ")
        if kind.lower() != "bearer" or not secret:
            raise Unauthenticated("the Authorization header must be 'Bearer <token>'")
        token = await self._look_up(digest_of(secret.strip()), now=now, before_lookup=before_lookup)
        if not isinstance(token, Token) or not token.is_valid(now=now):
            raise Unauthenticated("the token is unknown, expired or revoked")
        return token.access()

    def clear_cache(self) -> None:
        """Drop all cached look-ups, after this process created or revoked a token."""
        self._cache.clear()

    async def _without_token(self, headers: Mapping[str, str], *, now: float) -> Access:
        is_local = not self._is_exposed and not any(name in headers for name in PROXY_HEADERS)
        if is_local and not await self._look_up(None, now=now):
            return EVERYTHING
        raise Unauthenticated("a token is required: 'Authorization: Bearer <token>'; `trmon token create` creates one")

    async def _look_up(
        self, digest: str | None, *, now: float, before_lookup: Callable[[], None] = lambda: None
    ) -> Token | bool | None:
        found, at = self._cache.get(digest, (None, -math.inf))
        if not 0 <= now - at < CACHE_SECONDS:
            if not isinstance(found, Token):
                before_lookup()
            found = await asyncio.to_thread(self._read, digest, now=now)
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[digest] = (found, now)
        return found

    def _read(self, digest: str | None, *, now: float) -> Token | bool | None:
        if digest is None:
            return self._tokens.ever_created()
        token = self._tokens.by_digest(digest)
        if token is not None and token.is_valid(now=now):
            self._tokens.mark_used(token, now=now)
        return token


async def authenticate(
    scope: Connection, headers: Mapping[str, str], *, before_lookup: Callable[[], None]
) -> Access | None:
    """Return what the caller of a guarded path may do, None on an open path; store it in the connection's state too.

    Args: before_lookup: see `Authenticator.access`.
    Errors: Unauthenticated.
    """
    if not scope["path"].startswith(GUARDED_PATHS):
        return None
    authenticator: Authenticator = scope["app"].state.components.authenticator
    access = await authenticator.access(headers, now=time.time(), before_lookup=before_lookup)
    scope.setdefault("state", {})["access"] = access
    return access


def new_secret() -> str:
    """Return a new token: 256 random bits, with a prefix that secret scanners recognize."""
    return f"trmon_{secrets.token_urlsafe(32)}"


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a token in hex, the only form in which it is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def check_bind(settings: Settings, tokens: Tokens) -> None:
    """Refuse to be reachable beyond this machine without tokens. Errors: NotReady with the command that creates one."""
    if settings.is_exposed and not tokens.ever_created():
        raise NotReady(
            "a service that is reachable beyond this machine (by TRMON_HOST, TRMON_ALLOW_HOSTS or TRMON_PUBLIC_URL) "
            "needs a token, and none exists: create one with `trmon token create NAME --scope admin`"
        )


def access_of(connection: Connection) -> Access | None:
    """Return what the caller of a guarded path may do; None on an open path."""
    access: Access | None = connection.get("state", {}).get("access")
    return access


def client_address(connection: Connection) -> str:
    """Return the address of a request's client, empty if it is unknown."""
    client: tuple[str, int] | None = connection.get("client")
    return client[0] if client else ""


def caller_name(access: Access, *, address: str) -> str:
    """Return whom limits count a request for: its token, or its address if it has none."""
    return access.caller if access != EVERYTHING else address


def _requires(scope: Scope) -> Callable[[Request], Awaitable[Access]]:
    """Return the dependency of routes for callers with a scope. Errors: Unauthenticated, Forbidden."""

    async def require(request: Request) -> Access:
        access = access_of(request.scope)
        if access is None:
            raise Unauthenticated("this path does not authenticate its callers")
        access.require(scope)
        return access

    return require


require_reader, require_sender, require_admin = _requires(Scope.READ), _requires(Scope.INGEST), _requires(Scope.ADMIN)
Reader = Annotated[Access, Depends(require_reader)]
"""A caller who may read."""
Admin = Annotated[Access, Depends(require_admin)]
"""A caller who may change things."""
