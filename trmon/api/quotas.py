"""Quotas: list and set them."""

from __future__ import annotations

import time

from fastapi import APIRouter
from pydantic import Field

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Admin
from trmon.api.http.components import Service
from trmon.api.http.parameters import RequestBody
from trmon.domain.access import Quota
from trmon.domain.errors import Forbidden
from trmon.domain.identity import checked_name
from trmon_client.api.administration import QuotaInfo

MAX_LIMIT = 1 << 62


class QuotaIn(RequestBody):
    """The limits of a project; a limit that is absent or null is none."""

    max_runs: int | None = Field(None, ge=0, le=MAX_LIMIT, description="Runs, archived ones included.")
    max_bytes: int | None = Field(None, ge=0, le=MAX_LIMIT, description="Stored report bytes.")
    reports_per_second: float | None = Field(
        None, gt=0, le=1e9, allow_inf_nan=False, description="Reports a second, for each API process."
    )


router = APIRouter(prefix="/api/v1/quotas", tags=["quotas"], route_class=AnswerRoute)


@router.get("")
def list_quotas(access: Admin, service: Service) -> list[QuotaInfo]:
    """List the quotas by project; a project's token sees its project's."""
    return [QuotaInfo.from_fields(quota) for quota in service.store.quotas.list(access=access)]


@router.put("/{project}")
def put_quota(project: str, given: QuotaIn, access: Admin, service: Service) -> QuotaInfo:
    """Set the limits of a project; without any, the project is unlimited."""
    if access.project is not None:
        raise Forbidden(f"token {access.name!r} is limited to a project, and quotas are set for projects")
    quota = Quota(project=checked_name(project, field="project"), **given.model_dump())
    service.store.quotas.put(quota, access=access, now=time.time()).result()
    service.quota_gate.poll()
    return QuotaInfo.from_fields(quota)
