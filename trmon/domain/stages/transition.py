"""Transition: each final finding moves its rule's alert one step on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trmon.domain.alerts.transitions import QUIET, AlertTrack, Transition, advance_alert
from trmon.domain.context.pass_context import PassContext
from trmon.domain.rules.rule import Rule, RuleFinding
from trmon.domain.stages.detect import DetectedFindings
from trmon.domain.stages.fold import FoldedRow
from trmon.domain.state.pipeline_state import PipelineState


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedBatch:
    """The folded row with what became of the run's alerts, and the mind that remembers it."""

    folded: FoldedRow
    transitions: tuple[Transition, ...]
    pipeline_state: PipelineState


def move_alerts(detected: DetectedFindings) -> JudgedBatch:
    """Return the transitions of the row's findings, in their order."""
    made, pipeline_state = judge_findings(
        detected.findings, context=detected.folded.draft.context, pipeline_state=detected.folded.pipeline_state
    )
    return JudgedBatch(folded=detected.folded, transitions=made, pipeline_state=pipeline_state)


def judge_findings(
    findings: Iterable[tuple[Rule, RuleFinding]], *, context: PassContext, pipeline_state: PipelineState
) -> tuple[tuple[Transition, ...], PipelineState]:
    """Return what findings make of their rules' alerts, and the mind that remembers it."""
    run_id, run = context.run.id, str(context.run.key)
    tracks: dict[str, AlertTrack] = {}
    made = []
    for rule, finding in findings:
        track = tracks.get(rule.name) or pipeline_state.tracks.get(rule.name, QUIET)
        moved = advance_alert(track, finding, rule=rule, run_id=run_id, run=run)
        tracks[rule.name] = moved.track
        made.append(moved)
    return tuple(made), pipeline_state.tracking(tracks)
