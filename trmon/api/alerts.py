"""Alerts: list them, acknowledge them, read their transitions and deliveries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.auth import Admin, Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.json_numbers import Number
from trmon.api.http.parameters import After, Limit, PageOut
from trmon.api.http.response_model import ResponseModel
from trmon.domain.alerts.alert import Acknowledgement, Alert, AlertState, ListedAlert
from trmon.domain.alerts.delivery import DeliveryState
from trmon.domain.alerts.silences import Silence
from trmon.domain.incidents.incident import Incident
from trmon.domain.model.access import Access
from trmon.domain.model.finding import Severity
from trmon.store.repositories.deliveries import ListedDelivery

MAX_ACKS = 500


class AckIn(BaseModel):
    """An acknowledgement of an alert."""

    model_config = ConfigDict(extra="forbid")

    author: str | None = Field(None, min_length=1, max_length=128, description="Defaults to the token's name.")
    note: str = Field("", max_length=2000)


class AckManyIn(AckIn):
    """An acknowledgement of several alerts."""

    identities: list[Annotated[str, Field(max_length=1024)]] = Field(min_length=1, max_length=MAX_ACKS)


class AckRefusalOut(ResponseModel):
    """Why an alert was not acknowledged."""

    identity: str
    detail: str


class AckManyOut(ResponseModel):
    """The identities of the alerts that were acknowledged, and of those that were not."""

    acknowledged: list[str]
    refused: list[AckRefusalOut]


class AckOut(ResponseModel):
    """Who acknowledged an alert, and when."""

    author: str
    note: str
    at: float


class AlertEventOut(ResponseModel):
    """A state transition of an alert."""

    state: AlertState
    at: float
    attempt_id: int
    step: int
    update: int | None
    value: Number
    threshold: Number
    summary: str


class MemberOut(ResponseModel):
    """An alert that joined an incident."""

    identity: str
    rule: str
    severity: Severity
    state: AlertState
    attempt_id: int
    step: int
    summary: str


class SilencedOut(ResponseModel):
    """The silence that mutes an alert; of several, the one that ends last."""

    id: int
    author: str
    note: str = Field(description="Empty if the caller may not list the silence, which is of all projects.")
    ends_at: float

    @classmethod
    def of(cls, silences: Sequence[Silence], listed: ListedAlert, *, access: Access, now: float) -> Self | None:
        """Return the silence that covers an alert; None without one."""
        covering = [one for one in silences if one.covers(listed.alert, run=listed.run, owner=listed.owner, now=now)]
        if listed.alert.state is not AlertState.FIRING or not covering:
            return None
        silence = max(covering, key=lambda one: one.ends_at)
        return cls.from_fields(silence, note=silence.note if access.project in (None, silence.project) else "")


class AlertOut(ResponseModel):
    """One episode of an alert; `step` and `update` are where it began."""

    project: str
    run: str
    owner: str | None = Field(description="The owner of the run.")
    identity: str = Field(description="The same for every episode of a rule, run and labels.")
    rule: str = Field(description="The rule; `incident` for the alert that carries a run's incident.")
    title: str = Field(description="The rule in words; of an incident, its cause.")
    members: list[MemberOut] = Field(description="The alerts that joined an incident; empty for other alerts.")
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
    ack: AckOut | None = Field(description="The acknowledgement of this episode; null if there is none.")
    silenced: SilencedOut | None = Field(description="The silence that mutes it now; null if none does.")

    @classmethod
    def of(cls, listed: ListedAlert, *, members: Sequence[Alert] = (), silenced: SilencedOut | None = None) -> Self:
        """Return the response for an alert. Args: members: the alerts that joined it, of an incident."""
        alert = listed.alert
        return cls.from_fields(
            alert,
            project=listed.run.project,
            run=listed.run.run,
            owner=listed.owner,
            title=Incident(alert=alert).title if alert.is_incident else alert.rule.replace("_", " "),
            members=[MemberOut.from_fields(member) for member in members],
            ack=listed.ack,
            silenced=silenced,
        )


router = APIRouter(prefix="/api/v1/alerts", tags=["alerts"])

SEARCH = "Words that each must be part of the project, run, owner, rule, title or cause."


@router.get("")
def list_alerts(
    access: Reader,
    service: Service,
    project: Annotated[str | None, Query(max_length=128)] = None,
    run: Annotated[str | None, Query(max_length=128)] = None,
    state: AlertState | None = None,
    severity: Severity | None = None,
    search: Annotated[str, Query(max_length=256, description=SEARCH)] = "",
    after: After = None,
    limit: Limit = 50,
) -> PageOut[AlertOut]:
    """List alerts, newest first."""
    page = service.store.alerts.list(
        access=access,
        project=project,
        run=run,
        state=state,
        severity=severity,
        search=search,
        after=after,
        limit=limit,
    )
    return PageOut(items=_responses(service, page.items, access=access), next=page.next)


@router.get("/events")
def list_alert_events(
    access: Reader,
    service: Service,
    identity: Annotated[str, Query(max_length=1024)],
    after: After = None,
    limit: Limit = 50,
) -> PageOut[AlertEventOut]:
    """List the state transitions of an alert across its episodes, newest first."""
    page = service.store.alerts.events(identity, access=access, after=after, limit=limit)
    return PageOut(items=[AlertEventOut.from_fields(event) for event in page.items], next=page.next)


@router.post("/ack")
def acknowledge_alerts(given: AckManyIn, access: Admin, service: Service) -> AckManyOut:
    """Acknowledge several firing alerts in one transaction; those that cannot be are named, and the others are."""
    ack = Acknowledgement(author=given.author or access.name, note=given.note, at=time.time())
    outcomes = service.store.alerts.acknowledge_each(given.identities, ack, access=access).result()
    return AckManyOut(
        acknowledged=[identity for identity, refusal in outcomes.items() if refusal is None],
        refused=[AckRefusalOut(identity=one, detail=str(why)) for one, why in outcomes.items() if why is not None],
    )


@router.post("/{identity:path}/ack")
def acknowledge_alert(
    identity: Annotated[str, Path(max_length=1024)], given: AckIn, access: Admin, service: Service
) -> AlertOut:
    """Acknowledge a firing alert, which stops the reminders of this episode."""
    ack = Acknowledgement(author=given.author or access.name, note=given.note, at=time.time())
    return _responses(
        service, [service.store.alerts.acknowledge(identity, ack, access=access).result()], access=access
    )[0]


def _responses(service: Components, listed: Sequence[ListedAlert], *, access: Access) -> list[AlertOut]:
    incidents = [one for one in listed if one.alert.is_incident]
    members = service.store.alerts.members(incidents, health_rules=service.rules.health_rules())
    now = time.time()
    silences = service.store.silences.active(now=now)
    return [
        AlertOut.of(
            one, members=members.get(one.id, ()), silenced=SilencedOut.of(silences, one, access=access, now=now)
        )
        for one in listed
    ]


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


deliveries_router = APIRouter(prefix="/api/v1/deliveries", tags=["alerts"])


@deliveries_router.get("")
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
