"""Administration: tokens, quotas and the audit log."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Admin, digest_of, new_secret
from trmon.api.http.components import Service
from trmon.api.http.parameters import After, Limit, RequestBody
from trmon.domain.access import AuditAction, Quota, Scope, Token
from trmon.domain.errors import Forbidden
from trmon.domain.identity import checked_name
from trmon_client.api.administration import AuditEntryInfo, NewTokenInfo, QuotaInfo, TokenInfo
from trmon_client.api.answers import ItemPage

tokens = APIRouter(prefix="/api/v1/tokens", tags=["tokens"], route_class=AnswerRoute)
quotas = APIRouter(prefix="/api/v1/quotas", tags=["quotas"], route_class=AnswerRoute)
audit = APIRouter(prefix="/api/v1/audit", tags=["audit"], route_class=AnswerRoute)


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


@tokens.get("")
def list_tokens(access: Admin, service: Service) -> list[TokenInfo]:
    """List the tokens; a project's token lists those of its project."""
    return [_token_info(token) for token in service.store.tokens.list(access=access)]


@tokens.post("", status_code=201)
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


@tokens.post("/{name}/rotate", status_code=201)
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


@tokens.delete("/{name}", status_code=204)
def revoke_token(name: Name, access: Admin, service: Service, project: Project = None) -> None:
    """Revoke a token, effective immediately; the last admin token of all projects answers 409."""
    service.store.tokens.revoke(name, access=access, project=project, now=time.time()).result()
    service.authenticator.clear_cache()


def _token_info(token: Token) -> TokenInfo:
    return TokenInfo.from_fields(token, scopes=sorted(token.scopes, key=lambda scope: scope.value))


def _new_token_info(token: Token, secret: str) -> NewTokenInfo:
    return NewTokenInfo.from_fields(_token_info(token), secret=secret)


MAX_LIMIT = 1 << 62


class QuotaIn(RequestBody):
    """The limits of a project; a limit that is absent or null is none."""

    max_runs: int | None = Field(None, ge=0, le=MAX_LIMIT, description="Runs, archived ones included.")
    max_bytes: int | None = Field(None, ge=0, le=MAX_LIMIT, description="Stored report bytes.")
    reports_per_second: float | None = Field(
        None, gt=0, le=1e9, allow_inf_nan=False, description="Reports a second, for each API process."
    )


@quotas.get("")
def list_quotas(access: Admin, service: Service) -> list[QuotaInfo]:
    """List the quotas by project; a project's token sees its project's."""
    return [QuotaInfo.from_fields(quota) for quota in service.store.quotas.list(access=access)]


@quotas.put("/{project}")
def put_quota(project: str, given: QuotaIn, access: Admin, service: Service) -> QuotaInfo:
    """Set the limits of a project; without any, the project is unlimited."""
    if access.project is not None:
        raise Forbidden(f"token {access.name!r} is limited to a project, and quotas are set for projects")
    quota = Quota(project=checked_name(project, field="project"), **given.model_dump())
    service.store.quotas.put(quota, access=access, now=time.time()).result()
    service.quota_gate.poll()
    return QuotaInfo.from_fields(quota)


@audit.get("")
def list_audit_entries(
    access: Admin,
    service: Service,
    project: Annotated[str | None, Query(max_length=128)] = None,
    actor: Annotated[
        str | None, Query(max_length=256, description="The name of a token, `local` or `cli:USER`.")
    ] = None,
    action: AuditAction | None = None,
    since: Annotated[
        float | None, Query(allow_inf_nan=False, description="The earliest time, in Unix seconds.")
    ] = None,
    after: After = None,
    limit: Limit = 50,
) -> ItemPage[AuditEntryInfo]:
    """List administrative actions, newest first; a project's token sees its project's."""
    page = service.store.audit.list(
        access=access, project=project, actor=actor, action=action, since=since, after=after, limit=limit
    )
    return ItemPage(items=list(page.items), next=page.next)
