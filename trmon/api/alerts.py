"""Alerts: list them, acknowledge them, read their transitions and deliveries."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Admin, Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import After, Limit
from trmon.domain.access import Access
from trmon.domain.alerts.alert import Acknowledgement, Alert, AlertState, ListedAlert
from trmon.domain.alerts.delivery import DeliveryState
from trmon.domain.alerts.silences import Silence
from trmon.domain.finding import Severity
from trmon.domain.incidents.incident import Incident
from trmon.store.repositories.deliveries import ListedDelivery
from trmon_client.api.alerts import (
    AckRefusalInfo,
    AcksInfo,
    AlertEventInfo,
    AlertInfo,
    DeliveryInfo,
    MemberInfo,
    SilencedInfo,
)
from trmon_client.api.answers import ItemPage

MAX_ACKS = 500


class AckIn(BaseModel):
    """An acknowledgement of an alert."""

    model_config = ConfigDict(extra="forbid")

    author: str | None = Field(None, min_length=1, max_length=128, description="Defaults to the token's name.")
    note: str = Field("", max_length=2000)


class AckManyIn(AckIn):
    """An acknowledgement of several alerts."""

    identities: list[Annotated[str, Field(max_length=1024)]] = Field(min_length=1, max_length=MAX_ACKS)


router = APIRouter(prefix="/api/v1/alerts", tags=["alerts"], route_class=AnswerRoute)

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
) -> ItemPage[AlertInfo]:
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
    return ItemPage(items=_responses(service, page.items, access=access), next=page.next)


@router.get("/events")
def list_alert_events(
    access: Reader,
    service: Service,
    identity: Annotated[str, Query(max_length=1024)],
    after: After = None,
    limit: Limit = 50,
) -> ItemPage[AlertEventInfo]:
    """List the state transitions of an alert across its episodes, newest first."""
    page = service.store.alerts.events(identity, access=access, after=after, limit=limit)
    return ItemPage(items=[AlertEventInfo.from_fields(event) for event in page.items], next=page.next)


@router.post("/ack")
def acknowledge_alerts(given: AckManyIn, access: Admin, service: Service) -> AcksInfo:
    """Acknowledge several firing alerts in one transaction; those that cannot be are named, and the others are."""
    ack = Acknowledgement(author=given.author or access.name, note=given.note, at=time.time())
    outcomes = service.store.alerts.acknowledge_each(given.identities, ack, access=access).result()
    return AcksInfo.from_fields(
        acknowledged=[identity for identity, refusal in outcomes.items() if refusal is None],
        refused=[
            AckRefusalInfo.from_fields(identity=one, detail=str(why))
            for one, why in outcomes.items()
            if why is not None
        ],
    )


@router.post("/{identity:path}/ack")
def acknowledge_alert(
    identity: Annotated[str, Path(max_length=1024)], given: AckIn, access: Admin, service: Service
) -> AlertInfo:
    """Acknowledge a firing alert, which stops the reminders of this episode."""
    ack = Acknowledgement(author=given.author or access.name, note=given.note, at=time.time())
    return _responses(
        service, [service.store.alerts.acknowledge(identity, ack, access=access).result()], access=access
    )[0]


def _responses(service: Components, listed: Sequence[ListedAlert], *, access: Access) -> list[AlertInfo]:
    incidents = [one for one in listed if one.alert.is_incident]
    members = service.store.alerts.members(incidents, health_rules=service.rules.health_rules())
    now = time.time()
    silences = service.store.silences.active(now=now)
    return [
        _alert_info(
            one, members=members.get(one.id, ()), silenced=_silenced_info(silences, one, access=access, now=now)
        )
        for one in listed
    ]


deliveries_router = APIRouter(prefix="/api/v1/deliveries", tags=["alerts"], route_class=AnswerRoute)


@deliveries_router.get("")
def list_deliveries(
    access: Reader,
    service: Service,
    state: DeliveryState | None = None,
    project: str | None = None,
    run: str | None = None,
    after: After = None,
    limit: Limit = 50,
) -> ItemPage[DeliveryInfo]:
    """List deliveries, of a project or run if one is given, newest first; `state=dead`: those that failed for good."""
    page = service.store.deliveries.list(access=access, state=state, project=project, run=run, after=after, limit=limit)
    return ItemPage(items=[_delivery_info(listed) for listed in page.items], next=page.next)


def _silenced_info(
    silences: Sequence[Silence], listed: ListedAlert, *, access: Access, now: float
) -> SilencedInfo | None:
    """Return the silence that covers an alert; None without one."""
    covering = [one for one in silences if one.covers(listed.alert, run=listed.run, owner=listed.owner, now=now)]
    if listed.alert.state is not AlertState.FIRING or not covering:
        return None
    silence = max(covering, key=lambda one: one.ends_at)
    return SilencedInfo.from_fields(silence, note=silence.note if access.project in (None, silence.project) else "")


def _alert_info(
    listed: ListedAlert, *, members: Sequence[Alert] = (), silenced: SilencedInfo | None = None
) -> AlertInfo:
    """Return the response for an alert. Args: members: the alerts that joined it, of an incident."""
    alert = listed.alert
    return AlertInfo.from_fields(
        alert,
        project=listed.run.project,
        run=listed.run.run,
        owner=listed.owner,
        title=Incident(alert=alert).title if alert.is_incident else alert.rule.replace("_", " "),
        members=[MemberInfo.from_fields(member) for member in members],
        ack=listed.ack,
        silenced=silenced,
    )


def _delivery_info(listed: ListedDelivery) -> DeliveryInfo:
    """Return the response for a delivery."""
    return DeliveryInfo.from_fields(listed, project=listed.run.project, run=listed.run.run)
