"""Transition: applies each final finding to the alert of its rule."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trmon.domain.alerts.transitions import QUIET, AlertTrack, Transition, advance_alert
from trmon.domain.context.pass_context import PassContext
from trmon.domain.pipeline.stages.detect import DetectedFindings
from trmon.domain.pipeline.stages.fold import FoldedRow
from trmon.domain.pipeline.stages.incident_step import apply_incident_step
from trmon.domain.rules.condition import Truth
from trmon.domain.rules.rule import Rule, RuleFinding
from trmon.domain.state.pipeline_state import PipelineState


@dataclass(frozen=True, slots=True, kw_only=True)
class TransitionedBatch:
    """The folded row, the transitions of the run's alerts, and the state after them."""

    folded: FoldedRow
    transitions: tuple[Transition, ...]
    pipeline_state: PipelineState


def apply_transitions(detected: DetectedFindings) -> TransitionedBatch:
    """Return the transitions of the findings of a row, in their order, and that of the incident at each new step."""
    transitions, pipeline_state = apply_findings(
        detected.findings, context=detected.folded.draft.context, pipeline_state=detected.folded.pipeline_state
    )
    row = detected.folded.row
    if detected.folded.began_step:
        told, pipeline_state = apply_incident_step(
            pipeline_state, context=detected.folded.draft.context, key=row.key, at=row.closed_at
        )
        transitions = (*transitions, *told)
    return TransitionedBatch(folded=detected.folded, transitions=transitions, pipeline_state=pipeline_state)


def apply_findings(
    findings: Iterable[tuple[Rule, RuleFinding]], *, context: PassContext, pipeline_state: PipelineState
) -> tuple[tuple[Transition, ...], PipelineState]:
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
