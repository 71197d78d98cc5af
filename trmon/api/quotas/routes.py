"""Routes of quotas: list and set them."""

from __future__ import annotations

import time

from fastapi import APIRouter

from trmon.api.http.components import Service
from trmon.api.http.dependencies import Admin
from trmon.api.quotas.schemas import QuotaIn, QuotaOut
from trmon.domain.model.errors import Forbidden
from trmon.domain.model.identity import checked_name
from trmon.domain.model.quota import Quota

router = APIRouter(prefix="/api/v1/quotas", tags=["quotas"])


@router.get("")
def list_quotas(access: Admin, service: Service) -> list[QuotaOut]:
    """List the quotas by project; a project's token sees its project's."""
    return [QuotaOut.from_fields(quota) for quota in service.store.quotas.list(access=access)]


@router.put("/{project}")
def put_quota(project: str, given: QuotaIn, access: Admin, service: Service) -> QuotaOut:
    """Set the limits of a project; without any, the project is unlimited."""
    if access.project is not None:
        raise Forbidden(f"token {access.name!r} is limited to a project, and quotas are set for projects")
    quota = Quota(project=checked_name(project, field="project"), **given.model_dump())
    service.store.quotas.put(quota, access=access, now=time.time()).result()
    service.quota_gate.poll()
    return QuotaOut.from_fields(quota)
