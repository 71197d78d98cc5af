"""Publish: what a batch changed, in the form in which it is written and told."""

from __future__ import annotations

from dataclasses import dataclass

from trmon.domain.alerts.alert import Alert, AlertEvent
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.transition_deliveries import transition_deliveries
from trmon.domain.alerts.transitions import Transition
from trmon.domain.batches.batch import BatchRow, DecisionRow
from trmon.domain.context.pass_context import PassContext
from trmon.domain.model.json_number import json_number
from trmon.domain.rules.signal_reader import SignalReader
from trmon.domain.stages.transition import JudgedBatch
from trmon.domain.state.pipeline_state import PipelineState
from trmon.domain.state.run_update import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchChanges:
    """Everything one batch, or one change of a run's state, writes and tells, and the mind after it.

    `is_gauge` says whether the row is the newest one that gauges show.
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


def publish_batch(judged: JudgedBatch) -> BatchChanges:
    """Return the row, its decisions, and the alerts with their events and deliveries."""
    draft, row = judged.folded.draft, judged.folded.row
    told = publish_transitions(judged.transitions, context=draft.context, pipeline_state=judged.pipeline_state)
    return BatchChanges(
        pipeline_state=judged.pipeline_state,
        row=row,
        is_gauge=judged.folded.is_gauge,
        decisions=draft.decisions,
        alerts=told.alerts,
        alert_events=told.alert_events,
        deliveries=told.deliveries,
        events=(batch_event(row, at=draft.context.now), *told.events),
        unreplayed=draft.unreplayed,
    )


def publish_transitions(
    transitions: tuple[Transition, ...], *, context: PassContext, pipeline_state: PipelineState
) -> BatchChanges:
    """Return what transitions of alerts write and tell."""
    moved = [transition for transition in transitions if transition.alert is not None]
    return BatchChanges(
        pipeline_state=pipeline_state,
        alerts=tuple(transition.alert for transition in moved if transition.alert is not None),
        alert_events=tuple(transition.event for transition in moved if transition.event is not None),
        deliveries=tuple(delivery for transition in moved for delivery in transition_deliveries(transition, context)),
        events=tuple(_alert_event(transition) for transition in moved if transition.event is not None),
    )


def batch_event(row: BatchRow, *, at: float) -> Event:
    """Return what a watcher of the run hears of a row: where it is, and its headline numbers."""
    readout = SignalReader(row.signals, row.primary_pair)
    place = {"attempt_id": row.key.attempt_id, "step": row.key.step, "update": row.key.update}
    state = {"ordinal": row.ordinal, "complete": row.complete, "revised": row.revised}
    return Event(
        kind="batch",
        data={**place, **state, **{name: json_number(readout[name]) for name in ("mask_rate", "kl_k3", "reward_mean")}},
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
