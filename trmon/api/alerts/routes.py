"""Routes of alerts: list them, list their transitions, acknowledge them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query

from trmon.api.alerts.schemas import AckIn, AckManyIn, AckManyOut, AckRefusalOut, AlertEventOut, AlertOut, SilencedOut
from trmon.api.http.components import Components, Service
from trmon.api.http.dependencies import Admin, Reader
from trmon.api.http.page_parameters import After, Limit
from trmon.api.http.pages import PageOut
from trmon.domain.alerts.alert import Acknowledgement, AlertState
from trmon.domain.alerts.listed_alert import ListedAlert
from trmon.domain.model.access import Access
from trmon.domain.model.severity import Severity

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
