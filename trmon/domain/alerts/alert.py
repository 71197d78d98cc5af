"""Alerts, and the transitions that a finding causes: pending, firing, resolved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

import msgspec
from msgspec import structs

from trmon.domain.identity import BatchKey, RunKey
from trmon.domain.rules.condition import Evaluation, Truth
from trmon.domain.rules.rule import Rule, RuleFinding
from trmon.domain.severity import Severity

INCIDENT_RULE = "incident"
"""The rule name of the alert that carries a run's incident; no rule may have it."""
SINCE_LABEL = "since_step"
"""The label of an incident's alert with the step at which its cause began, where that is later than the incident."""
ENDED_LABEL = "ended"
"""The label of an incident's alert that says how its run finished with it."""


class AlertState(Enum):
    """The state of an alert; an alert that never fired is dropped, not resolved."""

    PENDING = "pending"
    FIRING = "firing"
    RESOLVED = "resolved"
    DROPPED = "dropped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One episode in which the condition of a rule holds on a run.

    `identity` is the same for every episode of (rule, run, labels); `attempt_id`, `step`, `update` are the place where
    the episode began, `since_at` the time. `value` and `threshold` are the newest ones.
    """

    identity: str
    run_id: int
    rule: str
    severity: Severity
    state: AlertState
    attempt_id: int
    step: int
    update: int | None
    since_at: float
    updated_at: float
    value: float
    threshold: float
    summary: str
    labels: dict[str, str]
    runbook: str = ""

    @property
    def is_incident(self) -> bool:
        """Whether the alert carries the incident of its run; its labels name the cause, and change with it."""
        return self.rule == INCIDENT_RULE

    @property
    def since_step(self) -> int:
        """The step at which what is wrong began; of an incident that a prediction opened, later than its own step."""
        return int(self.labels[SINCE_LABEL]) if self.is_incident and SINCE_LABEL in self.labels else self.step

    @property
    def run_ended(self) -> str:
        """How the run finished with the incident; empty for one that was over before, and for other alerts."""
        return self.labels.get(ENDED_LABEL, "") if self.is_incident else ""

    @property
    def episode(self) -> str:
        """The identity of this episode, unique among all alerts."""
        update = "" if self.update is None else f".{self.update}"
        return f"{self.identity}@{self.attempt_id}:{self.step}{update}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledgement:
    """A note that a person handles an alert's episode: reminders of it stop."""

    author: str
    note: str
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEvent:
    """A transition of an alert, unique by (identity, attempt, step, update or silence start, state)."""

    identity: str
    run_id: int
    attempt_id: int
    step: int
    update: int | None
    silence_started_at: float | None
    state: AlertState
    at: float
    value: float
    threshold: float
    summary: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAlert:
    """An alert with its id, its run, the owner of the run and its acknowledgement."""

    id: int
    run: RunKey
    alert: Alert
    owner: str | None = None
    ack: Acknowledgement | None = None


class TransitionReason(Enum):
    """Why an alert is in its state after a step."""

    QUIET = "the condition is not true"
    IMMUNE = "the run is in its first steps"
    BEGAN = "the condition became true"
    WAITING = "the condition holds, not yet for long enough"
    FIRED = "the condition has held for long enough"
    DROPPED = "the condition passed before it had held for long enough"
    FIRING = "the condition still holds"
    CLEARING = "the condition is clear, not yet for long enough"
    RESOLVED = "the condition has been clear for long enough"
    UNKNOWN = "a signal is missing: nothing changes"
    FINISHED = "the run has finished"
    RETIRED = "the rule is no longer in the rulebook"
    DELETED = "the run was deleted"
    RENAMED = "the run has another name now"
    OPENED = "a finding stands"
    REVISED = "another finding explains it"
    WORSENED = "it has become a page"
    HANDED_OVER = "it fires, and the run has another owner now"
    ACKNOWLEDGED = "it is acknowledged"


class AlertTrack(msgspec.Struct, frozen=True):
    """The state of one rule on one run: its open alert, and the number of steps for which it held or was clear."""

    alert: Alert | None = None
    holding_steps: int = 0
    clear_steps: int = 0


QUIET = AlertTrack()
"""The track of a rule that has no alert."""


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one step: the new track, the reason, the alert, and the event if the alert fired or resolved."""

    track: AlertTrack
    reason: TransitionReason
    alert: Alert | None = None
    event: AlertEvent | None = None


def advance_alert(track: AlertTrack, finding: RuleFinding, *, rule: Rule, run_id: int, run: str) -> Transition:
    """Return the transition of a rule's alert for the finding of one more step.

    Missing signals change nothing. An alert fires when the condition has held for `for_steps` steps and
    `for_seconds`, and resolves when the clear thresholds have been met for `clear_for_steps` steps. Both count
    consecutive steps; steps of unknown truth are skipped.
    """
    firing = track.alert is not None and track.alert.state is AlertState.FIRING
    truth = (finding.lingering if firing else finding.raised).truth
    if truth is Truth.UNKNOWN:
        return Transition(track=track, reason=TransitionReason.UNKNOWN)
    if firing:
        assert track.alert is not None
        if finding.lingering.truth is Truth.TRUE:
            alert = _updated(track.alert, finding, rule=rule, run=run)
            return Transition(
                track=structs.replace(track, alert=alert, clear_steps=0), reason=TransitionReason.FIRING, alert=alert
            )
        clear = track.clear_steps + 1
        if clear < rule.clear_for_steps:
            return Transition(track=structs.replace(track, clear_steps=clear), reason=TransitionReason.CLEARING)
        return end_alert(track, reason=TransitionReason.RESOLVED, now=finding.at, key=finding.key)
    if finding.steps <= rule.immune_steps:
        return Transition(track=track, reason=TransitionReason.IMMUNE)
    if truth is Truth.FALSE:
        return end_alert(track, reason=TransitionReason.DROPPED, now=finding.at)
    return _hold(track, finding, rule=rule, run_id=run_id, run=run)


def end_alert(
    track: AlertTrack, *, reason: TransitionReason, now: float, key: BatchKey | None = None, is_of_state: bool = False
) -> Transition:
    """Return the end of an open alert: its condition is clear, the run finished, or the rule was removed.

    Args: key: the batch that ends it, None for the one where it began; is_of_state: its rule reads run states, so it
    may already have fired and ended at the same step, and its start identifies its end.
    """
    if track.alert is None:
        return Transition(track=QUIET, reason=TransitionReason.QUIET)
    state = AlertState.DROPPED if track.alert.state is AlertState.PENDING else AlertState.RESOLVED
    alert, event = replace(track.alert, state=state, updated_at=now), None
    if state is AlertState.RESOLVED:
        event = transition_event(alert, key=key, silence_started_at=alert.since_at if is_of_state else None)
    return Transition(track=QUIET, reason=reason, alert=alert, event=event)


def transition_event(
    alert: Alert, *, key: BatchKey | None = None, silence_started_at: float | None = None
) -> AlertEvent:
    """Return the event of an alert's newest transition, at a batch or during a silence of the trainer."""
    key = key or BatchKey(alert.attempt_id, alert.step, alert.update)
    return AlertEvent(
        identity=alert.identity,
        run_id=alert.run_id,
        attempt_id=key.attempt_id,
        step=key.step,
        update=key.update,
        silence_started_at=silence_started_at,
        state=alert.state,
        at=alert.updated_at,
        value=alert.value,
        threshold=alert.threshold,
        summary=alert.summary,
    )


def _hold(track: AlertTrack, finding: RuleFinding, *, rule: Rule, run_id: int, run: str) -> Transition:
    severity, key = rule.severity_in(finding.mode), finding.key
    alert = track.alert or new_alert(rule, finding.raised, run_id=run_id, severity=severity, key=key, at=finding.at)
    alert = _updated(alert, finding, rule=rule, run=run)
    holding = track.holding_steps + 1
    reason, event = TransitionReason.WAITING if track.alert else TransitionReason.BEGAN, None
    if holding >= rule.for_steps and finding.at - alert.since_at >= rule.for_seconds:
        alert, reason = replace(alert, state=AlertState.FIRING), TransitionReason.FIRED
        event = transition_event(alert, key=key)
    return Transition(track=AlertTrack(alert=alert, holding_steps=holding), reason=reason, alert=alert, event=event)


def new_alert(
    rule: Rule, evaluation: Evaluation, *, run_id: int, severity: Severity, key: BatchKey, at: float
) -> Alert:
    """Return a pending alert of a rule whose condition became true at a batch, still without its summary."""
    return Alert(
        identity=rule.identity(run_id),
        run_id=run_id,
        rule=rule.name,
        severity=severity,
        state=AlertState.PENDING,
        attempt_id=key.attempt_id,
        step=key.step,
        update=key.update,
        since_at=at,
        updated_at=at,
        value=evaluation.value,
        threshold=evaluation.threshold,
        summary="",
        labels=rule.labels,
        runbook=rule.runbook,
    )


def _updated(alert: Alert, finding: RuleFinding, *, rule: Rule, run: str) -> Alert:
    """Return the alert with the numbers of a finding."""
    evaluation = finding.raised if finding.raised.truth is Truth.TRUE else finding.lingering
    summary = rule.format_summary(evaluation, run=run, step=finding.key.step, drift=finding.drift)
    value, threshold = evaluation.value, evaluation.threshold
    return replace(alert, updated_at=finding.at, value=value, threshold=threshold, summary=summary)


MAX_TRANSITIONS = 6
WITHIN_STEPS = 100


class FlapState(Enum):
    """Whether an alert flaps at one of its transitions: not at all, from this one on, or since an earlier one."""

    STABLE = "stable"
    STARTED = "started"
    ONGOING = "ongoing"


def flap_state(steps: Iterable[int], *, at_step: int, now_step: int) -> FlapState:
    """Return whether an alert flaps at a transition at a step, given the steps of all of the attempt."""
    known = tuple(steps)
    until_then = _count_recent(known, until=at_step)
    if until_then < MAX_TRANSITIONS or _count_recent(known, until=now_step) < MAX_TRANSITIONS:
        return FlapState.STABLE
    return FlapState.STARTED if until_then == MAX_TRANSITIONS else FlapState.ONGOING


def _count_recent(steps: tuple[int, ...], *, until: int) -> int:
    return sum(until - WITHIN_STEPS < step <= until for step in steps)
