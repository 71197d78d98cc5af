"""Tokens: create, list and revoke them."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Admin, digest_of, new_secret
from trmon.api.http.components import Service
from trmon.api.http.parameters import RequestBody
from trmon.domain.access import Scope, Token
from trmon.domain.errors import Forbidden
from trmon.domain.identity import checked_name
from trmon_client.api.administration import NewTokenInfo, TokenInfo


class TokenIn(RequestBody):
    """A new token."""

    name: str
    scopes: set[Scope] = Field(min_length=1)
    project: str | None = Field(None, description="Restrict the token to this project.")
    days: float = Field(365.0, gt=0, le=36_500, description="The number of days the token is valid.")


class RotationIn(RequestBody):
    """How a token is replaced by a new one."""

    overlap_hours: float = Field(24.0, ge=0, le=24 * 366, description="How long the old secret stays valid, in hours.")
    days: float = Field(365.0, gt=0, le=36_500, description="The number of days the new token is valid.")


router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"], route_class=AnswerRoute)

SECONDS_PER_DAY = 86_400.0
SECONDS_PER_HOUR = 3600.0

Name = Annotated[str, Path(max_length=128)]
Project = Annotated[
    str | None,
    Query(
        max_length=128,
        description="The token's project; by default the token of all projects or, if there is none, the only one of "
        "this name.",
    ),
]


@router.get("")
def list_tokens(access: Admin, service: Service) -> list[TokenInfo]:
    """List the tokens; a project's token lists those of its project."""
    return [_token_info(token) for token in service.store.tokens.list(access=access)]


@router.post("", status_code=201)
def create_token(given: TokenIn, access: Admin, service: Service) -> NewTokenInfo:
    """Create a token."""
    if access.project is not None and given.project != access.project:
        raise Forbidden(f"token {access.name!r} can create tokens for its own project only")
    secret, now = new_secret(), time.time()
    token = service.store.tokens.create(
        access=access,
        name=checked_name(given.name, field="name"),
        digest=digest_of(secret),
        scopes=given.scopes,
        project=None if given.project is None else checked_name(given.project, field="project"),
        created_at=now,
        expires_at=now + given.days * SECONDS_PER_DAY,
    )
    service.authenticator.clear_cache()
    return _new_token_info(token, secret)


@router.post("/{name}/rotate", status_code=201)
def rotate_token(
    name: Name, rotation: RotationIn, access: Admin, service: Service, project: Project = None
) -> NewTokenInfo:
    """Replace a token by one with a new secret and the same rights; the old secret stays valid for the overlap."""
    secret, now = new_secret(), time.time()
    token = service.store.tokens.rotate(
        name,
        access=access,
        project=project,
        now=now,
        digest=digest_of(secret),
        expires_at=now + rotation.days * SECONDS_PER_DAY,
        overlap_seconds=rotation.overlap_hours * SECONDS_PER_HOUR,
    ).result()
    service.authenticator.clear_cache()
    return _new_token_info(token, secret)


@router.delete("/{name}", status_code=204)
def revoke_token(name: Name, access: Admin, service: Service, project: Project = None) -> None:
    """Revoke a token, effective immediately; the last admin token of all projects answers 409."""
    service.store.tokens.revoke(name, access=access, project=project, now=time.time()).result()
    service.authenticator.clear_cache()


def _token_info(token: Token) -> TokenInfo:
    return TokenInfo.from_fields(token, scopes=sorted(token.scopes, key=lambda scope: scope.value))


def _new_token_info(token: Token, secret: str) -> NewTokenInfo:
    return NewTokenInfo.from_fields(_token_info(token), secret=secret)
