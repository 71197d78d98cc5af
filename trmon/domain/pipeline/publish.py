"""Publish: collects the changes of a batch as rows, alerts, deliveries and events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain

from msgspec import structs

from trmon.domain.alerts.alert import Alert, AlertEvent, AlertState
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.notification import NotifiedCause, build_notification
from trmon.domain.alerts.transitions import Transition
from trmon.domain.batches.batch import BatchRow, DecisionRow
from trmon.domain.findings.remedies import remedy_of
from trmon.domain.health.problems import cause_of
from trmon.domain.incidents.incident import Incident
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.pipeline.run_update import Event
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.rules.signal_reader import SignalReader
from trmon.domain.runs.run import RunState
from trmon.domain.severity import Severity, json_number
from trmon_client.api.answers import OpenEnum
from trmon_client.api.budget import IncidentAdviceInfo


def transition_deliveries(transition: Transition, context: PassContext) -> tuple[Delivery, ...]:
    """Return one delivery per receiver if a page, a warning or an incident has fired or resolved.

    Alerts of health are sent as the incident that they join. On a finished run only resolved alerts are delivered, also
    for batches that close after its end; an incident that was not sent before is sent once, as one that ended with it.
    """
    alert, event = transition.alert, transition.event
    if alert is None or event is None or alert.severity is Severity.INFO:
        return ()
    is_late = context.run.state is RunState.FINISHED and event.state is AlertState.FIRING
    if not alert.is_incident and (is_late or alert.rule in context.rules.of_health):
        return ()
    notification = build_notification(
        alert, event, reason=transition.reason, run=context.run, public_url=context.public_url
    )
    notification = structs.replace(notification, runbook_url=context.runbook_url(cause_of(alert)))
    if alert.is_incident:
        notification = structs.replace(notification, cause=_cause(alert, context), ended=alert.run_ended)
    # Resolved alerts go to all receivers, because the owner may have changed; muting drops those never notified.
    former = () if event.state is AlertState.FIRING else context.all_receivers
    receivers = dict.fromkeys((*context.receivers, *former))
    key, now, run_id, episode = _dedup_key(event), context.now, alert.run_id, alert.episode
    return tuple(
        Delivery.new(notification, receiver, key=key, now=now, run_id=run_id, episode=episode) for receiver in receivers
    )


def _dedup_key(event: AlertEvent) -> str:
    if event.silence_started_at is not None:
        place = f"silence-{event.silence_started_at:.3f}"
    else:
        place = f"{event.step}" if event.update is None else f"{event.step}.{event.update}"
    return f"{event.identity}:{event.attempt_id}:{place}:{event.state.value}"


def incident_advice(alert: Alert, context: PassContext) -> IncidentAdviceInfo:
    """Return what the trainer is told of its open incident."""
    cause = _cause(alert, context)
    return IncidentAdviceInfo(
        opened_step=alert.step,
        severity=OpenEnum(alert.severity.value),
        cause=cause.rule,
        title=cause.title,
        since_step=alert.since_step,
        last_good_step=cause.last_good_step,
        checkpoint_step=cause.checkpoint_step,
        checkpoint_path=cause.checkpoint_path,
        remedy=cause.remedy,
        summary=alert.summary,
    )


def _cause(alert: Alert, context: PassContext) -> NotifiedCause:
    incident = Incident(alert=alert)
    found = None
    if incident.remedy is not None:
        last_good, has_ended = incident.last_good_step, context.run.state.ended
        found = remedy_of(incident.remedy, context.run, last_good_step=last_good, has_ended=has_ended)
    return NotifiedCause(
        rule=incident.cause,
        title=incident.title,
        last_good_step=incident.last_good_step,
        remedy=alert.runbook if found is None else found.first,
        options={} if found is None else found.options,
        checkpoint="" if found is None else found.checkpoint,
        checkpoint_step=None if found is None else found.checkpoint_step,
        checkpoint_path=None if found is None else found.checkpoint_path,
        runbook_url=context.runbook_url(incident.cause),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChanges:
    """All changes that one batch, or one change of a run's state, makes, and the pipeline state after it.

    `is_gauge` is true if gauges show the row.
    """

    pipeline_state: PipelineState
    row: BatchRow | None = None
    is_gauge: bool = False
    decisions: tuple[DecisionRow, ...] = ()
    alerts: tuple[Alert, ...] = ()
    alert_events: tuple[AlertEvent, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    events: tuple[Event, ...] = ()
    unreplayed: int = 0


def publish_batch(closing: ClosingRow) -> BatchChanges:
    """Return the row, its decisions, and the alerts with their events and deliveries."""
    context, row = closing.context, closing.row
    changes = publish_transitions(closing.transitions, context=context, pipeline_state=closing.pipeline_state)
    return replace(
        changes,
        row=row,
        is_gauge=closing.is_gauge,
        decisions=closing.decisions,
        events=(batch_event(row, at=context.now), *changes.events),
        unreplayed=closing.unreplayed,
    )


def publish_transitions(
    transitions: tuple[Transition, ...], *, context: PassContext, pipeline_state: PipelineState
) -> BatchChanges:
    """Return the alerts, deliveries and events of transitions."""
    return BatchChanges(
        pipeline_state=pipeline_state,
        alerts=tuple(transition.alert for transition in transitions if transition.alert is not None),
        alert_events=tuple(transition.event for transition in transitions if transition.event is not None),
        deliveries=tuple(chain(*(transition_deliveries(transition, context) for transition in transitions))),
        events=tuple(
            Event(
                kind="alert",
                data={
                    "identity": transition.alert.identity,
                    "rule": transition.alert.rule,
                    "severity": transition.alert.severity.value,
                    "state": transition.event.state.value,
                    "reason": transition.reason.value,
                    "step": transition.event.step,
                    "summary": transition.event.summary,
                },
                at=transition.event.at,
            )
            for transition in transitions
            if transition.alert is not None and transition.event is not None
        ),
    )


def batch_event(row: BatchRow, *, at: float) -> Event:
    """Return the event of a row: its place and its main signals."""
    reader = SignalReader(row.signals, row.primary_pair)
    place = {"attempt_id": row.key.attempt_id, "step": row.key.step, "update": row.key.update}
    state = {"ordinal": row.ordinal, "complete": row.known_complete, "revised": row.revised}
    return Event(
        kind="batch",
        data={**place, **state, **{name: json_number(reader[name]) for name in ("mask_rate", "kl_k3", "reward_mean")}},
        at=at,
    )
