"""The audit log: list administrative actions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query

from trmon.api.http.auth import Admin
from trmon.api.http.components import Service
from trmon.api.http.parameters import After, Limit, PageOut
from trmon.api.http.response_model import ResponseModel
from trmon.domain.model.access import AuditAction


class AuditEntryOut(ResponseModel):
    """An administrative action: `before` is null for what was created, `after` for what was deleted."""

    id: int
    at: float
    actor: str
    token_id: int | None
    action: AuditAction
    project: str | None
    target: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None


router = APIRouter(prefix="/api/v1/audit", tags=["audit"])


@router.get("")
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
) -> PageOut[AuditEntryOut]:
    """List administrative actions, newest first; a project's token sees its project's."""
    page = service.store.audit.list(
        access=access, project=project, actor=actor, action=action, since=since, after=after, limit=limit
    )
    return PageOut(items=[AuditEntryOut.from_fields(entry) for entry in page.items], next=page.next)
