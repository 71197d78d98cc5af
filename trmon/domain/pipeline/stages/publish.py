"""Publish: collects the changes of a batch as rows, alerts, deliveries and events."""

from __future__ import annotations

from dataclasses import dataclass

from trmon.domain.alerts.alert import Alert, AlertEvent
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.transition_deliveries import transition_deliveries
from trmon.domain.alerts.transitions import Transition
from trmon.domain.batches.batch import BatchRow, DecisionRow
from trmon.domain.context.pass_context import PassContext
from trmon.domain.incidents.incident_deliveries import incident_deliveries
from trmon.domain.model.finding import json_number
from trmon.domain.pipeline.stages.transition import TransitionedBatch
from trmon.domain.rules.signal_reader import SignalReader
from trmon.domain.state.pipeline_state import PipelineState
from trmon.domain.state.run_update import Event


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


def publish_batch(batch: TransitionedBatch) -> BatchChanges:
    """Return the row, its decisions, and the alerts with their events and deliveries."""
    draft, row = batch.folded.draft, batch.folded.row
    changes = publish_transitions(batch.transitions, context=draft.context, pipeline_state=batch.pipeline_state)
    return BatchChanges(
        pipeline_state=batch.pipeline_state,
        row=row,
        is_gauge=batch.folded.is_gauge,
        decisions=draft.decisions,
        alerts=changes.alerts,
        alert_events=changes.alert_events,
        deliveries=changes.deliveries,
        events=(batch_event(row, at=draft.context.now), *changes.events),
        unreplayed=draft.unreplayed,
    )


def publish_transitions(
    transitions: tuple[Transition, ...], *, context: PassContext, pipeline_state: PipelineState
) -> BatchChanges:
    """Return the alerts, deliveries and events of transitions."""
    changed = [transition for transition in transitions if transition.alert is not None]
    return BatchChanges(
        pipeline_state=pipeline_state,
        alerts=tuple(transition.alert for transition in changed if transition.alert is not None),
        alert_events=tuple(transition.event for transition in changed if transition.event is not None),
        deliveries=tuple(delivery for transition in changed for delivery in _deliveries(transition, context)),
        events=tuple(_alert_event(transition) for transition in changed if transition.event is not None),
    )


def _deliveries(transition: Transition, context: PassContext) -> tuple[Delivery, ...]:
    if transition.alert is not None and transition.alert.is_incident:
        return incident_deliveries(transition, context)
    return transition_deliveries(transition, context)


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


def _alert_event(transition: Transition) -> Event:
    alert, event = transition.alert, transition.event
    assert alert is not None
    assert event is not None
    return Event(
        kind="alert",
        data={
            "identity": alert.identity,
            "rule": alert.rule,
            "severity": alert.severity.value,
            "state": event.state.value,
            "reason": transition.reason.value,
            "step": event.step,
            "summary": event.summary,
        },
        at=event.at,
    )
