"""Tokens: made, listed and revoked; the secret is shown once."""

from __future__ import annotations

import time
from typing import Annotated, Self

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.auth import digest_of, new_secret
from trmon.api.http.components import Components, Service
from trmon.api.http.dependencies import Admin
from trmon.domain.model.access import Access, Scope, Token
from trmon.domain.model.errors import Forbidden, NotFound
from trmon.domain.model.identity import checked_name

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])

SECONDS_PER_DAY = 86_400.0


class TokenIn(BaseModel):
    """A token to make."""

    model_config = ConfigDict(extra="forbid")

    name: str
    scopes: set[Scope] = Field(min_length=1)
    project: str | None = Field(None, description="Only this project; without, all.")
    days: float = Field(365.0, gt=0, le=36_500, description="How long it is valid.")


class TokenOut(BaseModel):
    """A token, without its secret."""

    name: str
    scopes: list[Scope]
    project: str | None
    created_at: float
    expires_at: float | None

    @classmethod
    def of(cls, token: Token) -> Self:
        """Return a token as answered."""
        return cls(
            name=token.name,
            scopes=sorted(token.scopes, key=lambda scope: scope.value),
            project=token.project,
            created_at=token.created_at,
            expires_at=token.expires_at,
        )


class NewTokenOut(TokenOut):
    """A new token with its secret, which nobody can show again."""

    secret: str


@router.get("")
def list_tokens(access: Admin, service: Service) -> list[TokenOut]:
    """List the tokens, of the caller's project if its own is for one."""
    return [TokenOut.of(token) for token in _visible(service, access)]


@router.post("", status_code=201)
def create_token(wanted: TokenIn, access: Admin, service: Service) -> NewTokenOut:
    """Make a token."""
    if access.project is not None and wanted.project != access.project:
        raise Forbidden(f"token {access.name!r} makes tokens for its own project only")
    secret, now = new_secret(), time.time()
    token = service.store.tokens.create(
        name=checked_name(wanted.name, field="name"),
        digest=digest_of(secret),
        scopes=wanted.scopes,
        project=None if wanted.project is None else checked_name(wanted.project, field="project"),
        created_at=now,
        expires_at=now + wanted.days * SECONDS_PER_DAY,
    )
    service.authenticator.clear_cache()
    return NewTokenOut(**TokenOut.of(token).model_dump(), secret=secret)


@router.delete("/{name}", status_code=204)
def revoke_token(name: Annotated[str, Path(max_length=128)], access: Admin, service: Service) -> None:
    """Revoke a token at once."""
    if name not in {token.name for token in _visible(service, access)}:
        raise NotFound("token", name)
    service.store.tokens.revoke(name).result()
    service.authenticator.clear_cache()


def _visible(service: Components, access: Access) -> list[Token]:
    tokens = service.store.tokens.list()
    return [token for token in tokens if access.project in (None, token.project)]
