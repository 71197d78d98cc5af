"""Alerts: list them, acknowledge them, read their transitions and deliveries; their budget and their pictures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from trmon.api.diagnosis_answer import behind_info
from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Admin, Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import After, Author, Limit, RequestBody
from trmon.domain.access import Access
from trmon.domain.alerts.alert import Acknowledgement, AlertState, ListedAlert
from trmon.domain.alerts.delivery import DeliveryState
from trmon.domain.alerts.silences import Silence
from trmon.domain.backtest.limit_trial import tunable_limits
from trmon.domain.errors import NotFound
from trmon.domain.health.problems import title_of_alert, title_of_rule
from trmon.domain.incidents.alarm_budget import DAY_SECONDS, WINDOW_DAYS, AlarmBudget, alarm_budgets
from trmon.domain.rules.rule import RuleSet
from trmon.domain.severity import Severity
from trmon_client.api.alerts import (
    AckRefusalInfo,
    AcksInfo,
    AlarmBudgetInfo,
    AlertEventInfo,
    AlertInfo,
    BudgetWindowInfo,
    DeliveryInfo,
    MemberInfo,
    ReceiversInfo,
    RuleBudgetInfo,
    SilencedInfo,
)
from trmon_client.api.answers import ItemPage

MAX_ACKS = 500


class AckIn(RequestBody):
    """An acknowledgement of an alert."""

    author: Author = None
    note: str = Field("", max_length=2000)

    def ack(self, access: Access) -> Acknowledgement:
        """Return it as of now, by the caller, who may go by another name."""
        return Acknowledgement(author=access.signed(self.author), note=self.note, at=time.time())


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


@router.get("/budget")
def get_alarm_budget(access: Reader, service: Service) -> AlarmBudgetInfo:
    """Return the messages of each rule per day of training over 7 and 30 days, and what came of its alerts."""
    now = time.time()
    record = service.store.budget_records.read(
        access=access, health_rules=service.rules.health_rules(), since=now - max(WINDOW_DAYS) * DAY_SECONDS
    )
    return AlarmBudgetInfo(windows=tuple(_window(one, rules=service.rules()) for one in alarm_budgets(record, now=now)))


def _window(budget: AlarmBudget, *, rules: RuleSet) -> BudgetWindowInfo:
    infos = [
        RuleBudgetInfo.from_fields(
            one,
            title=title_of_rule(one.rule),
            per_run_day=budget.per_run_day(one.messages),
            is_tunable=one.rule in rules.by_name and any(tunable_limits(rules.by_name[one.rule])),
        )
        for one in budget.rules
    ]
    return BudgetWindowInfo.from_fields(budget, per_run_day=budget.per_run_day(budget.messages), rules=infos)


@router.post("/ack")
def acknowledge_alerts(given: AckManyIn, access: Admin, service: Service) -> AcksInfo:
    """Acknowledge several firing alerts in one transaction; those that cannot be are named, and the others are."""
    outcomes = service.store.alerts.acknowledge_each(given.identities, given.ack(access), access=access).result()
    return AcksInfo.from_fields(
        acknowledged=[identity for identity, refusal in outcomes.items() if refusal is None],
        refused=[AckRefusalInfo(identity=one, detail=str(why)) for one, why in outcomes.items() if why is not None],
    )


@router.post("/{identity:path}/ack")
def acknowledge_alert(
    identity: Annotated[str, Path(max_length=1024)], given: AckIn, access: Admin, service: Service
) -> AlertInfo:
    """Acknowledge a firing alert, which stops the reminders of this episode."""
    acknowledged = service.store.alerts.acknowledge(identity, given.ack(access), access=access).result()
    return _responses(service, [acknowledged], access=access)[0]


def _responses(service: Components, listed: Sequence[ListedAlert], *, access: Access) -> list[AlertInfo]:
    incidents = [one for one in listed if one.alert.is_incident]
    members = service.store.alerts.members(incidents, health_rules=service.rules.health_rules())
    now, snapshots = time.time(), service.store.run_snapshots
    firing = {one.alert.run_id for one in listed if one.alert.state is AlertState.FIRING}
    late = {run_id: backlog for run_id, backlog in snapshots.backlogs(firing).items() if backlog.is_late(now)}
    outlooks = snapshots.outlooks(late)
    silences = service.store.silences.active(now=now)
    return [
        AlertInfo.from_fields(
            one.alert,
            project=one.run.project,
            run=one.run.run,
            owner=one.owner,
            step=one.alert.since_step,
            title=title_of_alert(one.alert),
            members=[
                MemberInfo.from_fields(member, title=title_of_alert(member)) for member in members.get(one.id, ())
            ],
            ack=one.ack,
            behind=behind_info(late.get(one.alert.run_id), outlooks[one.alert.run_id].judgement, now=now)
            if one.alert.state is AlertState.FIRING
            else None,
            silenced=_silenced_info(silences, one, access=access, now=now),
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
    return ItemPage(items=list(page.items), next=page.next)


@deliveries_router.get("/receivers")
def get_receivers(access: Reader, service: Service) -> ReceiversInfo:  # noqa: ARG001 - any reader
    """Return the receivers of alerts, and why none of them delivers alerts, if that is known; checked once a minute."""
    return ReceiversInfo(names=service.settings.receivers, problem=service.delivery_check.problem or None)


def _silenced_info(
    silences: Sequence[Silence], listed: ListedAlert, *, access: Access, now: float
) -> SilencedInfo | None:
    """Return the silence that covers an alert; None without one."""
    covering = [one for one in silences if one.covers(listed.alert, run=listed.run, owner=listed.owner, now=now)]
    if listed.alert.state is not AlertState.FIRING or not covering:
        return None
    silence = max(covering, key=lambda one: one.ends_at)
    return SilencedInfo.from_fields(silence, note=silence.note if access.project in (None, silence.project) else "")


pictures_router = APIRouter(tags=["alerts"])
PICTURE = ".png"


@pictures_router.get("/pictures/{name}", response_class=Response, responses={200: {"content": {"image/png": {}}}})
def get_picture(name: Annotated[str, Path(max_length=2048)], service: Service) -> Response:
    """Return the picture of an illness that a message links to; needs no token but the link's own signature."""
    if not name.endswith(PICTURE):
        raise NotFound("picture", "of this link")
    content = service.pictures.opened(name.removesuffix(PICTURE), now=time.time())
    return Response(content, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})
