"""Alerts: which rules are true of which runs, and how they came and went."""

from __future__ import annotations

import time
from typing import Annotated, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.components import Service
from trmon.api.http.dependencies import Admin, Reader
from trmon.api.http.json_numbers import Number
from trmon.api.http.pages import After, Limit, PageOut
from trmon.domain.alerts.alert import Acknowledgement, AlertEvent, AlertState
from trmon.domain.model.severity import Severity
from trmon.store.repositories.alerts import ListedAlert

router = APIRouter(prefix="/api/v1/alerts", tags=["alerts"])


class AckIn(BaseModel):
    """That somebody takes an alert up."""

    model_config = ConfigDict(extra="forbid")

    author: str | None = Field(None, min_length=1, max_length=128, description="Who; without, the token's name.")
    note: str = Field("", max_length=2000)


class AckOut(BaseModel):
    """Who has taken an alert up, and when."""

    author: str
    note: str
    at: float


class AlertOut(BaseModel):
    """One episode of a rule being true of a run; step and update say where it began."""

    project: str
    run: str
    identity: str = Field(description="The same for every episode of a rule, a run and its labels.")
    rule: str
    severity: Severity
    state: AlertState
    attempt_id: int
    step: int
    update: int | None
    since_at: float
    updated_at: float
    value: Number
    threshold: Number
    summary: str
    labels: dict[str, str]
    runbook: str
    ack: AckOut | None = Field(description="Who has acknowledged this episode; null while nobody has.")

    @classmethod
    def of(cls, listed: ListedAlert) -> Self:
        """Return an alert as answered."""
        given = {name: getattr(listed.alert, name) for name in cls.model_fields if hasattr(listed.alert, name)}
        return cls(project=listed.run.project, run=listed.run.run, ack=_ack_out(listed.ack), **given)


class AlertEventOut(BaseModel):
    """One transition of an alert."""

    state: AlertState
    at: float
    attempt_id: int
    step: int
    update: int | None
    value: Number
    threshold: Number
    summary: str

    @classmethod
    def of(cls, event: AlertEvent) -> Self:
        """Return a transition as answered."""
        return cls(**{name: getattr(event, name) for name in cls.model_fields})


@router.get("")
def list_alerts(
    access: Reader,
    service: Service,
    project: Annotated[str | None, Query(max_length=128)] = None,
    run: Annotated[str | None, Query(max_length=128)] = None,
    state: AlertState | None = None,
    after: After = None,
    limit: Limit = 50,
) -> PageOut[AlertOut]:
    """List alerts, newest first."""
    page = service.store.alerts.list(access=access, project=project, run=run, state=state, after=after, limit=limit)
    return PageOut(items=[AlertOut.of(listed) for listed in page.items], next=page.next)


@router.get("/events")
def list_alert_events(
    access: Reader,
    service: Service,
    identity: Annotated[str, Query(max_length=1024)],
    after: After = None,
    limit: Limit = 50,
) -> PageOut[AlertEventOut]:
    """List the transitions of an alert's episodes, newest first."""
    page = service.store.alerts.events(identity, access=access, after=after, limit=limit)
    return PageOut(items=[AlertEventOut.of(event) for event in page.items], next=page.next)


@router.post("/{identity:path}/ack")
def acknowledge_alert(
    identity: Annotated[str, Path(max_length=1024)], given: AckIn, access: Admin, service: Service
) -> AlertOut:
    """Acknowledge a firing alert: nobody is reminded of this episode any more."""
    ack = Acknowledgement(author=given.author or access.name, note=given.note, at=time.time())
    return AlertOut.of(service.store.alerts.acknowledge(identity, ack, access=access).result())


def _ack_out(ack: Acknowledgement | None) -> AckOut | None:
    return None if ack is None else AckOut(author=ack.author, note=ack.note, at=ack.at)
