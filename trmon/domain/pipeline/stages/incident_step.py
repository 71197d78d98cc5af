"""Incident step: adds the step to the run's incident, which is told in place of the alerts of health in it."""

from __future__ import annotations

from msgspec import structs

from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.transitions import Transition, TransitionReason
from trmon.domain.context.pass_context import PassContext
from trmon.domain.incidents.incident import Incident
from trmon.domain.incidents.incident_course import DAMPING_STEPS, IncidentStep, end_incident, follow_incident
from trmon.domain.model.finding import Severity
from trmon.domain.model.identity import BatchKey
from trmon.domain.state.pipeline_state import PipelineState


def apply_incident_step(
    pipeline_state: PipelineState, *, context: PassContext, key: BatchKey, at: float, is_last: bool = False
) -> tuple[tuple[Transition, ...], PipelineState]:
    """Return the transition of the run's incident after a step, if there is one, and the state after it.

    Args: is_last: whether the run finished after the step.
    """
    steps = pipeline_state.steps
    recent = tuple(ended for ended in pipeline_state.incident_ends if ended > steps - DAMPING_STEPS)
    step = IncidentStep(
        run_id=context.run.id,
        run=str(context.run.key),
        key=key,
        at=at,
        firing=_firing(pipeline_state, context, is_last=is_last),
        rules=context.rules.by_name,
        known_steps=[known.step for known in pipeline_state.gauge_keys if known.attempt_id == key.attempt_id],
        recent_ends=len(recent),
        is_last=is_last,
    )
    incident, transition = follow_incident(pipeline_state.incident, step)
    return _with_incident(pipeline_state, incident, transition, recent=recent)


def end_open_incident(
    pipeline_state: PipelineState, *, key: BatchKey, at: float
) -> tuple[tuple[Transition, ...], PipelineState]:
    """Return the transition that ends an open incident with its run, and the state after it."""
    incident = pipeline_state.incident
    if incident is None or not incident.is_open:
        return (), pipeline_state
    ended, transition = end_incident(incident, reason=TransitionReason.FINISHED, key=key, at=at)
    return _with_incident(pipeline_state, ended, transition, recent=pipeline_state.incident_ends)


def _with_incident(
    pipeline_state: PipelineState, incident: Incident | None, transition: Transition | None, *, recent: tuple[int, ...]
) -> tuple[tuple[Transition, ...], PipelineState]:
    if transition is None:
        return (), structs.replace(pipeline_state, incident=incident)
    has_ended = incident is not None and not incident.is_open
    ends = (*recent, pipeline_state.steps) if has_ended else recent
    return (transition,), structs.replace(pipeline_state, incident=incident, incident_ends=ends)


def _firing(pipeline_state: PipelineState, context: PassContext, *, is_last: bool) -> list[Alert]:
    """Return the firing alerts of health; predictions are left out once the run has finished."""
    found = []
    for name, track in pipeline_state.tracks.items():
        rule = context.rule(name)
        if rule is None or (is_last and rule.is_prediction):
            continue
        if track.alert is not None and track.alert.state is AlertState.FIRING and rule.is_of_health:
            found.append(track.alert)
    return [alert for alert in found if alert.severity is not Severity.INFO]
