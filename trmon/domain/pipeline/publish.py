"""Publish: the changes of a batch as rows, alerts, deliveries and events; the update of a run that one pass writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from msgspec import structs

from trmon.domain.alerts.alert import Alert, AlertEvent, AlertState, Transition
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.notification import NotifiedCause, build_notification
from trmon.domain.batches.batch import BatchRow, DecisionRow
from trmon.domain.collapse_risk.risk_model import model_in_use
from trmon.domain.collapse_risk.risk_reading import RiskReading, read_risk
from trmon.domain.findings.judge import JudgeState
from trmon.domain.findings.memory import SignalMemory
from trmon.domain.findings.remedies import remedy_of
from trmon.domain.findings.verdict import Judgement
from trmon.domain.health.problems import cause_of
from trmon.domain.incidents.incident import Incident
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.policies import PolicyVersion
from trmon.domain.rules.condition import SignalReader
from trmon.domain.runs.run import Run, RunEnding, RunState, RunWarning
from trmon.domain.severity import Severity, json_number
from trmon.domain.signals.derived_signals import SHADOW_PREFIX
from trmon_client.api.answers import OpenEnum, convert_answer
from trmon_client.api.budget import AdviceInfo, IncidentAdviceInfo
from trmon_client.core.column_schema import PRIMARY_ORDER
from trmon_client.core.wire.messages import decodable

POINTS = 48
DIGITS = 4
"""Significant digits: enough for such a small chart, and 500 sparklines are sent in one response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """A signal from its first to its last step in at most 48 points, None if unknown."""

    first_step: int
    last_step: int
    values: tuple[float | None, ...]


@decodable
@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """The newest values of a run, each None while it is unknown; the lines are of the judged rows of its attempt."""

    reward: Sparkline | None = None
    kl: Sparkline | None = None
    mask_rate: float | None = None
    collapse_risk: RiskReading | None = None


def summary_of(signals: Mapping[str, float], judged: JudgeState) -> RunSummary:
    """Return the summary of a run. Args: signals: of its newest gauge row; judged: its rows so far."""
    kl = (judged.signals[name] for pair in PRIMARY_ORDER if (name := f"{pair}_kl_k3") in judged.signals)
    mask_rate = signals.get("mask_rate")
    return RunSummary(
        reward=sparkline_of(judged.reward.signal, judged),
        kl=sparkline_of(next(kl, SignalMemory()), judged),
        mask_rate=mask_rate if mask_rate == mask_rate else None,
        collapse_risk=read_risk(signals, model_in_use()),
    )


def sparkline_of(memory: SignalMemory, judged: JudgeState) -> Sparkline | None:
    """Return means of equally many of the newest 200 rows of the newest attempt; None if the signal has no value."""
    places = [place for place in judged.places if place.attempt == judged.places[-1].attempt]
    rows, values = np.asarray(memory.rows) - (judged.rows - len(places)), memory.array()
    rows, values = rows[rows >= 0], values[rows >= 0]
    if not len(rows):
        return None
    points = min(POINTS, len(places))
    at = rows * points // len(places)
    sums = np.bincount(at, weights=values, minlength=points).tolist()
    counts = np.bincount(at, minlength=points).tolist()
    means = (float(f"{total / n:.{DIGITS}g}") if n else None for total, n in zip(sums, counts, strict=True))
    return Sparkline(first_step=places[0].step, last_step=places[-1].step, values=tuple(means))


BOUNDS: Mapping[str, str] = {"adaptive": "bound_adaptive", "trpo": "bound_trpo"}


def judgement_in(outlook: Mapping[str, Any]) -> Judgement | None:
    """Return the judgement in what a run's worker last stored of it; None before its first judged step."""
    stored = outlook.get("judgement")
    return None if stored is None else msgspec.convert(stored, Judgement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a run's worker last stored of it, for those who show the run; empty before it has.

    `judgement` is that of its newest judged step, None before one.
    """

    judgement: Judgement | None = None
    summary: RunSummary = field(default_factory=RunSummary)
    expected_step_seconds: float | None = None

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Outlook:
        """Return the outlook in a stored document."""
        return cls(
            judgement=judgement_in(stored),
            summary=msgspec.convert(stored.get("summary") or {}, RunSummary),
            expected_step_seconds=stored.get("expected_step_seconds"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView(Outlook):
    """The values of one run at a time; `row` is its newest gauge row, None before the first batch closes."""

    run: Run
    row: BatchRow | None
    policy: PolicyVersion
    alerts: tuple[Alert, ...]
    updated_at: float
    advice: AdviceInfo | None = None

    @classmethod
    def of(cls, outlook: Mapping[str, Any], **others: Any) -> RunView:
        """Return the view of a run whose worker has stored an outlook, empty before it has. Args: others: fields."""
        advice, known = outlook.get("advice"), Outlook.read(outlook)
        return cls(
            advice=None if advice is None else convert_answer(advice, AdviceInfo),
            **{one.name: getattr(known, one.name) for one in fields(Outlook)},
            **others,
        )

    def document(self) -> dict[str, Any]:
        """Return what only the worker knows as a JSON-compatible document, and the ordinal of the row."""
        return {
            "gauge_ordinal": None if self.row is None else self.row.ordinal,
            "expected_step_seconds": self.expected_step_seconds,
            "advice": None if self.advice is None else self.advice.document(),
            "judgement": None if self.judgement is None else msgspec.to_builtins(self.judgement),
            "summary": msgspec.to_builtins(self.summary),
        }

    @property
    def signals(self) -> Mapping[str, float]:
        """The gauge row's signals by full name."""
        return self.row.signals if self.row else {}

    @property
    def scalars(self) -> Mapping[str, float]:
        """The trainer's scalars in the gauge row."""
        return self.row.scalars if self.row else {}

    @property
    def mask_rates(self) -> Mapping[str, float]:
        """The share of rejected sequences by policy name: the active policy and each shadow."""
        rates = self.signals.items()
        shadows = {name.removeprefix(SHADOW_PREFIX): rate for name, rate in rates if name.startswith(SHADOW_PREFIX)}
        active = self.signals.get("mask_rate")
        return shadows if active is None else {**shadows, self.policy.policy.name: active}

    @property
    def bounds(self) -> Mapping[str, float]:
        """The error bounds by kind; NaN where they cannot be asserted."""
        return {kind: self.signals[name] for kind, name in BOUNDS.items() if name in self.signals}


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """How far a worker has read: all reports and notices up to these ids are processed."""

    report_id: int = 0
    notice_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The pipeline state of a run after the batch `ordinal`, as bytes, with its STATE_VERSION."""

    ordinal: int
    version: int
    state: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """How far a worker has read a run, and the newest checkpoint of its state, if there is one.

    `moved_ordinal` is the ordinal of the newest batch of a run whose attempts have all moved to the lake.
    """

    frontier: Frontier = Frontier()
    checkpoint: Checkpoint | None = None
    moved_ordinal: int = 0


EDIT = "edit"
"""The kind of event for a change of a run, its policy or its adaptation that its worker did not make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event that is pushed to clients that follow the run: batch, alert, state, policy, ack or edit."""

    kind: str
    data: dict[str, Any]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUpdate:
    """All changes of one pass over one run."""

    run_id: int
    frontier: Frontier
    batches: tuple[BatchRow, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    alerts: tuple[Alert, ...] = ()
    alert_events: tuple[AlertEvent, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    events: tuple[Event, ...] = ()
    policy: PolicyVersion | None = None
    state: RunState | None = None
    last_step: int | None = None
    attempt_id: int | None = None
    owner: str | None = None
    tags: tuple[str, ...] | None = None
    config: dict[str, Any] = field(default_factory=dict)
    mode: str | None = None
    ending: RunEnding | None = None
    warnings: tuple[RunWarning, ...] | None = None
    checkpoint: Checkpoint | None = None
    outlook: dict[str, Any] | None = None


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
