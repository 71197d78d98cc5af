"""Rules over a run itself: what a stall, a crash, a return, an end or a second trainer makes of alerts."""

from __future__ import annotations

from trmon.domain.alerts.transitions import (
    QUIET,
    AlertText,
    Transition,
    TransitionReason,
    end_alert,
    raise_alert,
    resolve_alert,
)
from trmon.domain.context.pass_context import PassContext
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.severity import Severity
from trmon.domain.rules.condition import Evaluation, InState, Truth, TwoTrainersLive
from trmon.domain.rules.rule import Rule
from trmon.domain.runs.duplicate_trainers import DuplicateTrainers
from trmon.domain.runs.liveness import LifeChange
from trmon.domain.runs.run import RunState
from trmon.domain.stages.transition import judge_findings
from trmon.domain.state.pipeline_state import PipelineState


def judge_change(
    change: LifeChange, *, context: PassContext, pipeline_state: PipelineState, key: BatchKey
) -> tuple[tuple[Transition, ...], PipelineState]:
    """Return what a change of state makes of the alerts of rules over states.

    They fire at once, as the time they wait for lies in the state itself. A run that finished resolves nothing here:
    that is `at_rest`'s.
    Args: key: the newest batch that is known, where the alert is placed.
    """
    if change.state is RunState.FINISHED:
        return (), pipeline_state
    moved: dict[str, Transition] = {}
    for rule in context.state_rules:
        if not isinstance(rule.when, InState):
            continue
        track = pipeline_state.tracks.get(rule.name, QUIET)
        if rule.when.state is change.state and track.alert is None:
            seen = Evaluation(Truth.TRUE, "silent_seconds", change.silent_seconds, change.limit_seconds)
            since = change.silence_started_at
            moved[rule.name] = _raise(
                rule, seen, context=context, pipeline_state=pipeline_state, key=key, at=change.at, since=since
            )
        elif rule.when.state is not change.state and track.alert is not None:
            moved[rule.name] = resolve_alert(track, now=change.at)
    return tuple(moved.values()), pipeline_state.tracking(
        {name: transition.track for name, transition in moved.items()}
    )


def judge_duplicate_trainers(
    found: DuplicateTrainers | None, *, context: PassContext, pipeline_state: PipelineState, now: float
) -> tuple[tuple[Transition, ...], PipelineState]:
    """Return what two trainers under the run's name make of alerts; they resolve once one of the two is gone.

    Args: found: the two that have lived side by side for longest, None where one lives alone.
    """
    moved: dict[str, Transition] = {}
    for rule in context.state_rules:
        if not isinstance(rule.when, TwoTrainersLive):
            continue
        track = pipeline_state.tracks.get(rule.name, QUIET)
        if found is not None and found.seconds > rule.when.seconds:
            if track.alert is None:
                seen = Evaluation(Truth.TRUE, found.names, found.seconds, rule.when.seconds)
                key = BatchKey(found.newer.attempt_id, found.newer.last_step or 0, None)
                moved[rule.name] = _raise(
                    rule, seen, context=context, pipeline_state=pipeline_state, key=key, at=now, since=now
                )
        elif track.alert is not None:
            moved[rule.name] = resolve_alert(track, now=now)
    return tuple(moved.values()), pipeline_state.tracking(
        {name: transition.track for name, transition in moved.items()}
    )


def judge_run_end(
    *, context: PassContext, pipeline_state: PipelineState, now: float
) -> tuple[tuple[Transition, ...], PipelineState]:
    """Return what the end of a run, its last batch closed, makes of its alerts.

    The last step's findings are final now; if the run finished, every open alert ends, so that no incident stays open.
    """
    last = [
        (rule, pipeline_state.provisional[rule.name])
        for rule in context.signal_rules
        if rule.name in pipeline_state.provisional
    ]
    made, pipeline_state = judge_findings(last, context=context, pipeline_state=pipeline_state.settled())
    if context.run.state is not RunState.FINISHED:
        return made, pipeline_state
    of_state = {rule.name for rule in context.state_rules}
    ended = {
        name: end_alert(track, reason=TransitionReason.FINISHED, now=now, is_of_state=name in of_state)
        for name, track in pipeline_state.tracks.items()
    }
    return (*made, *ended.values()), pipeline_state.tracking(dict.fromkeys(ended, QUIET))


def retire_removed_rules(
    *, context: PassContext, pipeline_state: PipelineState, now: float
) -> tuple[tuple[Transition, ...], PipelineState]:
    """Return the end of alerts whose rule is no longer in the rulebook."""
    gone = {name: track for name, track in pipeline_state.tracks.items() if context.rule(name) is None}
    if not gone:
        return (), pipeline_state
    ended = tuple(end_alert(track, reason=TransitionReason.RETIRED, now=now) for track in gone.values())
    return ended, pipeline_state.tracking(dict.fromkeys(gone, QUIET))


def _raise(
    rule: Rule,
    seen: Evaluation,
    *,
    context: PassContext,
    pipeline_state: PipelineState,
    key: BatchKey,
    at: float,
    since: float,
) -> Transition:
    """In a run's first steps nothing pages: its owner still sits there, and is told by a warning."""
    severity = rule.severity_in(context.run.mode)
    if severity is Severity.PAGE and pipeline_state.steps < rule.immune_steps:
        severity = Severity.WARN
    text = AlertText(
        at=at,
        value=seen.value,
        threshold=seen.threshold,
        summary=rule.say(seen, run=str(context.run.key), step=key.step),
        silence_started_at=since,
    )
    return raise_alert(rule, run_id=context.run.id, severity=severity, key=key, text=text)
