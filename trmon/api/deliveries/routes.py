"""Deliveries: what receivers were told, what waits, what was muted and why, and what was given up."""

from __future__ import annotations

from typing import Any, Self

from fastapi import APIRouter
from pydantic import BaseModel, Field

from trmon.api.http.components import Service
from trmon.api.http.dependencies import Reader
from trmon.api.http.pages import After, Limit, PageOut
from trmon.domain.alerts.alert import AlertState, DeliveryState
from trmon.store.repositories.deliveries import ListedDelivery

router = APIRouter(prefix="/api/v1/deliveries", tags=["alerts"])


class DeliveryOut(BaseModel):
    """One notification to one receiver."""

    id: int
    project: str
    run: str
    receiver: str
    state: DeliveryState
    told_state: AlertState = Field(description="Whether it tells that the alert fires or that it has resolved.")
    attempts: int
    rounds: int = Field(description="How often it was told.")
    made_at: float
    due_at: float
    tried_at: float | None
    last_error: str | None
    muted: str | None = Field(description="Why nobody was told.")
    body: dict[str, Any]

    @classmethod
    def of(cls, listed: ListedDelivery) -> Self:
        """Return a delivery as answered."""
        delivery = listed.delivery
        return cls(
            id=delivery.id,
            project=listed.run.project,
            run=listed.run.run,
            receiver=delivery.receiver,
            state=listed.state,
            told_state=delivery.told_state,
            attempts=delivery.attempts,
            rounds=delivery.rounds,
            made_at=delivery.made_at,
            due_at=delivery.due_at,
            tried_at=listed.tried_at,
            last_error=listed.last_error,
            muted=listed.muted,
            body=delivery.body,
        )


@router.get("")
def list_deliveries(
    access: Reader, service: Service, state: DeliveryState | None = None, after: After = None, limit: Limit = 50
) -> PageOut[DeliveryOut]:
    """List deliveries, newest first; `state=dead` are those that were given up."""
    page = service.store.deliveries.list(access=access, state=state, after=after, limit=limit)
    return PageOut(items=[DeliveryOut.of(listed) for listed in page.items], next=page.next)
