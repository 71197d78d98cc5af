"""Routes of tokens: create, list, rotate and revoke them; a secret is shown once."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path, Query

from trmon.api.http.auth import digest_of, new_secret
from trmon.api.http.components import Service
from trmon.api.http.dependencies import Admin
from trmon.api.tokens.schemas import NewTokenOut, RotationIn, TokenIn, TokenOut
from trmon.domain.model.errors import Forbidden
from trmon.domain.model.identity import checked_name

router = APIRouter(prefix="/api/v1/tokens", tags=["tokens"])

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
def list_tokens(access: Admin, service: Service) -> list[TokenOut]:
    """List the tokens; a project's token lists those of its project."""
    return [TokenOut.of(token) for token in service.store.tokens.list(access=access)]


@router.post("", status_code=201)
def create_token(given: TokenIn, access: Admin, service: Service) -> NewTokenOut:
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
    return NewTokenOut.with_secret(token, secret)


@router.post("/{name}/rotate", status_code=201)
def rotate_token(
    name: Name, rotation: RotationIn, access: Admin, service: Service, project: Project = None
) -> NewTokenOut:
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
    return NewTokenOut.with_secret(token, secret)


@router.delete("/{name}", status_code=204)
def revoke_token(name: Name, access: Admin, service: Service, project: Project = None) -> None:
    """Revoke a token, effective immediately; the last admin token of all projects answers 409."""
    service.store.tokens.revoke(name, access=access, project=project, now=time.time()).result()
    service.authenticator.clear_cache()
