"""Authenticates callers by bearer tokens, which are stored as SHA-256 digests."""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from starlette.types import Scope

from trmon.config.settings import Settings
from trmon.domain.model.access import EVERYTHING, Access, Token
from trmon.domain.model.errors import NotReady, Unauthenticated

GUARDED_PATHS = ("/api/", "/metrics")
CACHE_SECONDS = 2.0
"""How long a look-up is cached: a token that another process revokes is refused after this time at the latest."""
MAX_CACHED = 10_000


class TokenLookup(Protocol):
    """Looks up tokens in the store."""

    def by_digest(self, digest: str) -> Token | None:
        """Return the token with this digest, or None."""

    def any(self) -> bool:
        """Return whether a token exists that is not revoked."""


class Authenticator:
    """Authenticates callers by their tokens; a loopback service without tokens allows everything."""

    def __init__(self, tokens: TokenLookup, *, is_loopback: bool) -> None:
        self._tokens = tokens
        self._is_loopback = is_loopback
        self._cache: dict[str | None, tuple[Token | bool | None, float]] = {}

    async def access(
        self, authorization: str | None, *, now: float, before_lookup: Callable[[], None] = lambda: None
    ) -> Access:
        """Return what a caller with this Authorization header may do. Errors: Unauthenticated.

        Args: before_lookup: called before a token that is not cached is looked up; may raise.
        """
        if authorization is None:
            return await self._without_token(now=now)
        kind, _, secret = authorization.partition(" ")
        if kind.lower() != "bearer" or not secret:
            raise Unauthenticated("the Authorization header must be 'Bearer <token>'")
        token = await self._look_up(digest_of(secret.strip()), now=now, before_lookup=before_lookup)
        if not isinstance(token, Token) or (token.expires_at is not None and token.expires_at <= now):
            raise Unauthenticated("the token is unknown, expired or revoked")
        return token.access()

    def clear_cache(self) -> None:
        """Drop all cached look-ups, after this process created or revoked a token."""
        self._cache.clear()

    async def _without_token(self, *, now: float) -> Access:
        if self._is_loopback and not await self._look_up(None, now=now):
            return EVERYTHING
        raise Unauthenticated("a token is required: 'Authorization: Bearer <token>'; `trmon token create` creates one")

    async def _look_up(
        self, digest: str | None, *, now: float, before_lookup: Callable[[], None] = lambda: None
    ) -> Token | bool | None:
        found, at = self._cache.get(digest, (None, -math.inf))
        if not 0 <= now - at < CACHE_SECONDS:
            if not isinstance(found, Token):
                before_lookup()
            query = self._tokens.any if digest is None else lambda: self._tokens.by_digest(digest)
            found = await asyncio.to_thread(query)
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[digest] = (found, now)
        return found


async def authenticate(scope: Scope, headers: Mapping[str, str], *, before_lookup: Callable[[], None]) -> Access | None:
    """Return what the caller of a guarded path may do, None on an open path; store it in the connection's state too.

    Args: before_lookup: see `Authenticator.access`.
    Errors: Unauthenticated.
    """
    if not scope["path"].startswith(GUARDED_PATHS):
        return None
    authenticator: Authenticator = scope["app"].state.components.authenticator
    access = await authenticator.access(headers.get("authorization"), now=time.time(), before_lookup=before_lookup)
    scope.setdefault("state", {})["access"] = access
    return access


def new_secret() -> str:
    """Return a new token: 256 random bits, with a prefix that secret scanners recognize."""
    return f"trmon_{secrets.token_urlsafe(32)}"


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a token in hex, the only form in which it is stored."""
    return hashlib.sha256(secret.encode()).hexdigest()


def check_bind(settings: Settings, tokens: TokenLookup) -> None:
    """Refuse to listen beyond loopback without tokens. Errors: NotReady with the command that creates one."""
    if not settings.is_loopback and not tokens.any():
        raise NotReady(
            f"listening on {settings.host} needs a token, and none exists: create one with "
            "`trmon token create NAME --scope admin`, or listen on 127.0.0.1"
        )
