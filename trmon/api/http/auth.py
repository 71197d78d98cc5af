"""Who calls: bearer tokens in the header, known by their SHA-256, to what they may do."""

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
REMEMBERED_SECONDS = 2.0
"""How long a look-up stands: a token revoked by another process is refused after it at the latest."""
MAX_REMEMBERED = 10_000


class TokenLookup(Protocol):
    """What the door asks of the store."""

    def by_digest(self, digest: str) -> Token | None:
        """Return the token with this digest, or None."""

    def any(self) -> bool:
        """Return whether a token was ever made and not revoked."""


class Authenticator:
    """Knows callers by their tokens; on a loopback service without tokens, everyone may do everything."""

    def __init__(self, tokens: TokenLookup, *, is_loopback: bool) -> None:
        self._tokens = tokens
        self._is_loopback = is_loopback
        self._remembered: dict[str | None, tuple[Token | bool | None, float]] = {}

    async def access(
        self, authorization: str | None, *, now: float, admit: Callable[[], None] = lambda: None
    ) -> Access:
        """Return what a caller with this Authorization header may do. Errors: Unauthenticated.

        Args: admit: asked before a token that was not known lately is looked up; may raise.
        """
        if authorization is None:
            return await self._without_token(now=now)
        kind, _, secret = authorization.partition(" ")
        if kind.lower() != "bearer" or not secret:
            raise Unauthenticated("the Authorization header must be 'Bearer <token>'")
        token = await self._look_up(digest_of(secret.strip()), now=now, admit=admit)
        if not isinstance(token, Token) or (token.expires_at is not None and token.expires_at <= now):
            raise Unauthenticated("the token is unknown, expired or revoked")
        return token.access()

    def forget(self) -> None:
        """Look everything up anew: a token was made or revoked here."""
        self._remembered.clear()

    async def _without_token(self, *, now: float) -> Access:
        if self._is_loopback and not await self._look_up(None, now=now):
            return EVERYTHING
        raise Unauthenticated("a token is needed: 'Authorization: Bearer <token>'; `trmon token create` makes one")

    async def _look_up(
        self, digest: str | None, *, now: float, admit: Callable[[], None] = lambda: None
    ) -> Token | bool | None:
        found, at = self._remembered.get(digest, (None, -math.inf))
        if not 0 <= now - at < REMEMBERED_SECONDS:
            if not isinstance(found, Token):
                admit()
            look = self._tokens.any if digest is None else lambda: self._tokens.by_digest(digest)
            found = await asyncio.to_thread(look)
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            self._remembered[digest] = (found, now)
        return found


async def known_access(scope: Scope, headers: Mapping[str, str], *, admit: Callable[[], None]) -> Access | None:
    """Return what the caller of a guarded path may do, None on an open one; it stands in the connection's state too.

    Args: admit: as of `Door.access`.
    Errors: Unauthenticated.
    """
    if not scope["path"].startswith(GUARDED_PATHS):
        return None
    authenticator: Authenticator = scope["app"].state.components.authenticator
    access = await authenticator.access(headers.get("authorization"), now=time.time(), admit=admit)
    scope.setdefault("state", {})["access"] = access
    return access


def new_secret() -> str:
    """Return a new token: 256 random bits, marked so that scanners for leaked secrets know it."""
    return f"trmon_{secrets.token_urlsafe(32)}"


def digest_of(secret: str) -> str:
    """Return the SHA-256 of a token in hex, the only form in which it is kept."""
    return hashlib.sha256(secret.encode()).hexdigest()


def check_bind(settings: Settings, tokens: TokenLookup) -> None:
    """Refuse to listen beyond this machine while anyone could call. Errors: NotReady with the command that helps."""
    if not settings.is_loopback and not tokens.any():
        raise NotReady(
            f"listening on {settings.host} needs a token, and there is none: make one with "
            "`trmon token create NAME --scope admin`, or listen on 127.0.0.1"
        )
