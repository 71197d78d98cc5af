"""Response schemas of deliveries."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from trmon.api.http.response_model import ResponseModel
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.delivery import DeliveryState
from trmon.store.repositories.deliveries import ListedDelivery


class DeliveryOut(ResponseModel):
    """The delivery of an alert to one receiver."""

    id: int
    project: str
    run: str
    receiver: str
    state: DeliveryState
    told_state: AlertState = Field(description="Whether the notification says that the alert fires or is resolved.")
    attempts: int
    rounds: int = Field(description="How many notifications were sent, reminders and updates included.")
    made_at: float
    due_at: float
    tried_at: float | None
    last_error: str | None
    muted: str | None = Field(description="Why no notification was sent.")
    body: dict[str, Any]

    @classmethod
    def of(cls, listed: ListedDelivery) -> Self:
        """Return the response for a delivery."""
        return cls.from_fields(listed, project=listed.run.project, run=listed.run.run)
