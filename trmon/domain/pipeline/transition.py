"""Transitions: what findings, states of the run and its end change in its alerts and its incident."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from msgspec import structs

from trmon.domain.alerts.alert import (
    QUIET,
    AlertState,
    AlertTrack,
    Transition,
    TransitionReason,
    advance_alert,
    end_alert,
    new_alert,
    transition_event,
)
from trmon.domain.findings.verdict import explains
from trmon.domain.identity import BatchKey
from trmon.domain.incidents.incident import (
    DAMPING_STEPS,
    Incident,
    IncidentStep,
    end_incident,
    follow_incident,
    how_run_ends,
)
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.pipeline.judging import judge_pending, judgement_of
from trmon.domain.pipeline.state import PassContext, PipelineState
from trmon.domain.rules.condition import Evaluation, InState, Truth, TwoTrainersLive
from trmon.domain.rules.rule import Rule, RuleFinding
from trmon.domain.runs.attempts import DuplicateTrainers
from trmon.domain.runs.liveness import StateChange
from trmon.domain.runs.run import RunState
from trmon.domain.severity import Severity

Transitioned: TypeAlias = tuple[tuple[Transition, ...], PipelineState]
"""The transitions of a run's alerts, and the pipeline state after them."""


def apply_incident_step(
    pipeline_state: PipelineState, *, context: PassContext, key: BatchKey, at: float, is_last: bool = False
) -> Transitioned:
    """Return the transition of the run's incident after a step, and the state. Args: is_last: the run then finished."""
    steps = pipeline_state.steps
    recent = tuple(ended for ended in pipeline_state.incident_ends if ended > steps - DAMPING_STEPS)
    firing = [
        track.alert
        for name, track in pipeline_state.tracks.items()
        if name in context.rules.of_health
        and track.alert is not None
        and track.alert.state is AlertState.FIRING
        and track.alert.severity is not Severity.INFO
    ]
    step = IncidentStep(
        run_id=context.run.id,
        run=str(context.run.key),
        key=key,
        at=at,
        firing=firing,
        judgement=judgement_of(pipeline_state, context) if firing else None,
        explains=partial(explains, context.rules.catalogue),
        known_steps=[known.step for known in pipeline_state.gauge_keys if known.attempt_id == key.attempt_id],
        recent_ends=len(recent),
        is_last=is_last,
    )
    incident, transition = follow_incident(pipeline_state.incident, step)
    return _with_incident(pipeline_state, incident, transition, recent=recent)


def end_open_incident(pipeline_state: PipelineState, *, context: PassContext, key: BatchKey, at: float) -> Transitioned:
    """Return the transition that ends an open incident with its run, and the state after it."""
    incident = pipeline_state.incident
    if incident is None or not incident.is_open:
        return (), pipeline_state
    run_ends = how_run_ends(judgement_of(pipeline_state, context), severity=incident.severity)
    ended, transition = end_incident(incident, key=key, at=at, run_ends=run_ends)
    return _with_incident(pipeline_state, ended, transition, recent=pipeline_state.incident_ends)


def _with_incident(
    pipeline_state: PipelineState, incident: Incident | None, transition: Transition | None, *, recent: tuple[int, ...]
) -> Transitioned:
    if transition is None:
        return (), structs.replace(pipeline_state, incident=incident)
    has_ended = incident is not None and not incident.is_open
    ends = (*recent, pipeline_state.steps) if has_ended else recent
    return (transition,), structs.replace(pipeline_state, incident=incident, incident_ends=ends)


def apply_transitions(closing: ClosingRow) -> ClosingRow:
    """Return the row with the transitions of its findings, in order, and that of the incident at each new step."""
    context, row = closing.context, closing.row
    transitions, pipeline_state = apply_findings(
        closing.findings, context=context, pipeline_state=closing.pipeline_state
    )
    transitions = (*closing.transitions, *transitions)
    if closing.began_step:
        told, pipeline_state = apply_incident_step(pipeline_state, context=context, key=row.key, at=row.closed_at)
        transitions = (*transitions, *told)
    return replace(closing, transitions=transitions, pipeline_state=pipeline_state)


def apply_findings(
    findings: Iterable[tuple[Rule, RuleFinding]], *, context: PassContext, pipeline_state: PipelineState
) -> Transitioned:
    """Return the transitions that findings cause, and the state after them; most cause none: no alert, no truth."""
    run_id, run = context.run.id, str(context.run.key)
    tracks: dict[str, AlertTrack] = {}
    transitions = []
    for rule, finding in findings:
        track = tracks.get(rule.name) or pipeline_state.tracks.get(rule.name, QUIET)
        if track is QUIET and finding.raised.truth is not Truth.TRUE:
            continue
        transition = advance_alert(track, finding, rule=rule, run_id=run_id, run=run)
        tracks[rule.name] = transition.track
        transitions.append(transition)
    return tuple(transitions), pipeline_state.with_tracks(tracks) if tracks else pipeline_state


def apply_state_change(
    change: StateChange, *, context: PassContext, pipeline_state: PipelineState, key: BatchKey
) -> Transitioned:
    """Return the transitions of rules over states after a change of state.

    They fire without a delay, since the state includes it. Alerts of a run that finished end in `apply_run_end`.
    Args: key: the newest known batch, to which the alert refers.
    """
    if change.state is RunState.FINISHED:
        return (), pipeline_state
    transitions: dict[str, Transition] = {}
    for rule in context.rules.over_states:
        if not isinstance(rule.when, InState):
            continue
        track = pipeline_state.tracks.get(rule.name, QUIET)
        if rule.when.state is change.state and track.alert is None:
            evaluation = Evaluation(Truth.TRUE, "silent_seconds", change.silent_seconds, change.limit_seconds)
            transitions[rule.name] = _raise(
                rule,
                evaluation,
                context=context,
                pipeline_state=pipeline_state,
                key=key,
                at=change.at,
                since=change.silence_started_at,
                error=(change.ending and change.ending.phrase) or "no error text",
            )
        elif rule.when.state is not change.state and track.alert is not None:
            transitions[rule.name] = end_alert(track, reason=TransitionReason.RESOLVED, now=change.at, is_of_state=True)
    return _with_tracks(pipeline_state, transitions)


def apply_duplicate_trainers(
    found: DuplicateTrainers | None, *, context: PassContext, pipeline_state: PipelineState, now: float
) -> Transitioned:
    """Return the transitions of rules over duplicate trainers. Args: found: the oldest pair, None if there is none."""
    transitions: dict[str, Transition] = {}
    for rule in context.rules.over_states:
        if not isinstance(rule.when, TwoTrainersLive):
            continue
        track = pipeline_state.tracks.get(rule.name, QUIET)
        if found is not None and found.seconds > rule.when.seconds:
            if track.alert is None:
                evaluation = Evaluation(Truth.TRUE, found.names, found.seconds, rule.when.seconds)
                key = BatchKey(found.newer.attempt_id, found.newer.last_step or 0, None)
                transitions[rule.name] = _raise(
                    rule, evaluation, context=context, pipeline_state=pipeline_state, key=key, at=now, since=now
                )
        elif track.alert is not None:
            transitions[rule.name] = end_alert(track, reason=TransitionReason.RESOLVED, now=now, is_of_state=True)
    return _with_tracks(pipeline_state, transitions)


def _with_tracks(pipeline_state: PipelineState, transitions: Mapping[str, Transition]) -> Transitioned:
    tracks = {name: transition.track for name, transition in transitions.items()}
    return tuple(transitions.values()), pipeline_state.with_tracks(tracks)


def apply_run_end(*, context: PassContext, pipeline_state: PipelineState, now: float) -> Transitioned:
    """Return the transitions at the end of a run, after its last batch has closed.

    The findings of the last step are final now. If the run finished, all open alerts end, so that no incident stays
    open, and no prediction of what comes next begins.
    """
    last = [
        (rule, pipeline_state.provisional[rule.name])
        for rule in context.rules.over_signals
        if rule.name in pipeline_state.provisional
    ]
    transitions, pipeline_state = apply_findings(
        last, context=context, pipeline_state=structs.replace(pipeline_state, provisional={})
    )
    judged, pipeline_state = judge_pending(pipeline_state, context=context, is_last=True)
    transitions = (*transitions, *judged)
    if context.run.state is not RunState.FINISHED:
        return transitions, pipeline_state
    state_rules = {rule.name for rule in context.rules.over_states}
    ended = {
        name: end_alert(track, reason=TransitionReason.FINISHED, now=now, is_of_state=name in state_rules)
        for name, track in pipeline_state.tracks.items()
    }
    last_key = pipeline_state.folded or BatchKey(context.run.attempt_id or 0, context.run.last_step or 0, None)
    told, pipeline_state = apply_incident_step(pipeline_state, context=context, key=last_key, at=now, is_last=True)
    over, pipeline_state = end_open_incident(pipeline_state, context=context, key=last_key, at=now)
    ended_transitions, pipeline_state = _with_tracks(pipeline_state, ended)
    return (*transitions, *told, *over, *ended_transitions), pipeline_state


def judge_newest_step(*, context: PassContext, pipeline_state: PipelineState) -> Transitioned:
    """Return the transitions of the newest step, judged although no later one began; its incident follows only them."""
    transitions, state = judge_pending(pipeline_state, context=context)
    if not any(transition.event for transition in transitions) or state.folded is None:
        return transitions, state
    told, state = apply_incident_step(state, context=context, key=state.folded, at=context.now)
    return (*transitions, *told), state


def retire_removed_rules(*, context: PassContext, pipeline_state: PipelineState, now: float) -> Transitioned:
    """Return the transitions that end the alerts of removed rules."""
    ended = {
        name: end_alert(track, reason=TransitionReason.RETIRED, now=now)
        for name, track in pipeline_state.tracks.items()
        if context.rule(name) is None
    }
    return _with_tracks(pipeline_state, ended)


def _raise(
    rule: Rule,
    evaluation: Evaluation,
    *,
    context: PassContext,
    pipeline_state: PipelineState,
    key: BatchKey,
    at: float,
    since: float,
    error: str = "",
) -> Transition:
    """Raise an alert of a run state, which fires at once, because the state includes the wait.

    In the first steps of a run a page becomes a warning, since its owner still watches the start.
    """
    severity = rule.severity_in(context.run.mode)
    if severity is Severity.PAGE and pipeline_state.steps < rule.immune_steps:
        severity = Severity.WARN
    summary = rule.format_summary(evaluation, run=str(context.run.key), step=key.step, error=error)
    alert = new_alert(rule, evaluation, run_id=context.run.id, severity=severity, key=key, at=at)
    alert = replace(alert, state=AlertState.FIRING, summary=summary)
    event = transition_event(alert, silence_started_at=since)
    return Transition(track=AlertTrack(alert=alert), reason=TransitionReason.FIRED, alert=alert, event=event)
