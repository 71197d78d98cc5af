"""Routes of deliveries: list sent, pending, muted and dead ones."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.api.deliveries.schemas import DeliveryOut
from trmon.api.http.components import Service
from trmon.api.http.dependencies import Reader
from trmon.api.http.page_parameters import After, Limit
from trmon.api.http.pages import PageOut
from trmon.domain.alerts.delivery import DeliveryState

router = APIRouter(prefix="/api/v1/deliveries", tags=["alerts"])


@router.get("")
def list_deliveries(
    access: Reader,
    service: Service,
    state: DeliveryState | None = None,
    project: str | None = None,
    run: str | None = None,
    after: After = None,
    limit: Limit = 50,
) -> PageOut[DeliveryOut]:
    """List deliveries, of a project or run if one is given, newest first; `state=dead`: those that failed for good."""
    page = service.store.deliveries.list(access=access, state=state, project=project, run=run, after=after, limit=limit)
    return PageOut(items=[DeliveryOut.of(listed) for listed in page.items], next=page.next)
