"""Routes of tokens: create, list and revoke them; the secret is shown once."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path

from trmon.api.http.auth import digest_of, new_secret
from trmon.api.http.components import Components, Service
from trmon.api.http.dependencies import Admin
from trmon.api.tokens.schemas import NewTokenOut, TokenIn, TokenOut
from trmon.domain.model.access import Access, Token
from trmon.domain.model.errors import Forbidden, NotFound
from trmon.domain.model.identity import checked_name

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])

SECONDS_PER_DAY = 86_400.0


@router.get("")
def list_tokens(access: Admin, service: Service) -> list[TokenOut]:
    """List the tokens; a project's token lists those of its project."""
    return [TokenOut.of(token) for token in _visible(service, access)]


@router.post("", status_code=201)
def create_token(given: TokenIn, access: Admin, service: Service) -> NewTokenOut:
    """Create a token."""
    if access.project is not None and given.project != access.project:
        raise Forbidden(f"token {access.name!r} can create tokens for its own project only")
    secret, now = new_secret(), time.time()
    token = service.store.tokens.create(
        name=checked_name(given.name, field="name"),
        digest=digest_of(secret),
        scopes=given.scopes,
        project=None if given.project is None else checked_name(given.project, field="project"),
        created_at=now,
        expires_at=now + given.days * SECONDS_PER_DAY,
    )
    service.authenticator.clear_cache()
    return NewTokenOut(**TokenOut.of(token).model_dump(), secret=secret)


@router.delete("/{name}", status_code=204)
def revoke_token(name: Annotated[str, Path(max_length=128)], access: Admin, service: Service) -> None:
    """Revoke a token, effective immediately."""
    if name not in {token.name for token in _visible(service, access)}:
        raise NotFound("token", name)
    service.store.tokens.revoke(name).result()
    service.authenticator.clear_cache()


def _visible(service: Components, access: Access) -> list[Token]:
    tokens = service.store.tokens.list()
    return [token for token in tokens if access.project in (None, token.project)]
