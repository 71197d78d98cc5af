"""The audit log: list administrative actions."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Admin
from trmon.api.http.components import Service
from trmon.api.http.parameters import After, Limit
from trmon.domain.access import AuditAction
from trmon_client.api.administration import AuditEntryInfo
from trmon_client.api.answers import ItemPage

router = APIRouter(prefix="/api/v1/audit", tags=["audit"], route_class=AnswerRoute)


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
) -> ItemPage[AuditEntryInfo]:
    """List administrative actions, newest first; a project's token sees its project's."""
    page = service.store.audit.list(
        access=access, project=project, actor=actor, action=action, since=since, after=after, limit=limit
    )
    return ItemPage(items=[AuditEntryInfo.from_fields(entry) for entry in page.items], next=page.next)
