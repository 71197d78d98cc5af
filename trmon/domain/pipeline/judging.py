"""Judging: the row of a step is collected from its batches and scalars, and judged once the next step begins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import structs

from trmon.domain.alerts.alert import (
    QUIET,
    Alert,
    AlertState,
    AlertTrack,
    Transition,
    TransitionReason,
    transition_event,
)
from trmon.domain.batches.batch import BatchRow
from trmon.domain.findings.configuration import facts_of
from trmon.domain.findings.judge import JudgeState, Place, Row, Spell
from trmon.domain.findings.sentences import headline, summary_line
from trmon.domain.findings.verdict import Judgement, found_of, judge_run
from trmon.domain.framework_names.translation import signals_of_scalars
from trmon.domain.identity import BatchKey
from trmon.domain.pipeline.state import PassContext, PendingRow, PipelineState
from trmon.domain.rules.rule import Rule
from trmon.domain.severity import Severity

BASELINE = "baseline"
"""The signal of a row that counts the configurations of its run."""
NEW_BASELINE = "new_baseline"
"""The scalar by which a trainer declares a change, such as a step of a curriculum: the run's start begins anew."""
OF_UPDATES = ("staleness_", "clip_fraction", "leak_")
"""What the names of numbers of updates begin with: of a step with updates they come from its last one."""
NOT_OF_CONFIG = ("path", "dir", "resume", "checkpoint", "name", "seed", "host", "port", "url", "launch")
"""Words in options that differ between the attempts of one configuration."""


def values_of(row: BatchRow) -> dict[str, float]:
    """Return the numbers of a row that a judge reads: signals, and scalars under trmon's names."""
    counts = {"n_tokens": float(row.n_tokens), "n_sequences": float(row.n_sequences)} if row.last_report_id else {}
    return {**counts, **signals_of_scalars(row.scalars), **row.signals}


def with_row(pipeline_state: PipelineState, row: BatchRow, *, begins_step: bool, is_gauge: bool) -> PipelineState:
    """Return the state whose pending row has the values of one more row; of a step that is judged nothing changes."""
    values, pending = values_of(row), pipeline_state.pending
    if pending is None and not begins_step:
        return pipeline_state
    if pending is None:
        pending = PendingRow(key=row.key, at=row.closed_at)
    if row.key.update is None:
        pending = structs.replace(pending, of_rollout=values)
    else:
        pending = structs.replace(pending, of_update=values)
    pending = structs.replace(pending, key=row.key) if is_gauge else pending
    return structs.replace(pipeline_state, pending=pending)


def pending_values(pending: PendingRow) -> dict[str, float]:
    """Return the values of a step: of its rollout row, else of its last update, and those of updates from that one."""
    if not pending.of_rollout:
        return pending.of_update
    updates = {name: value for name, value in pending.of_update.items() if name.startswith(OF_UPDATES)}
    return {**pending.of_rollout, **updates}


def judge_pending(
    pipeline_state: PipelineState, *, context: PassContext, is_last: bool = False
) -> tuple[tuple[Transition, ...], PipelineState]:
    """Return the transitions of the findings after the pending row, and the state. Args: is_last: no row follows."""
    pending, former = pipeline_state.pending, pipeline_state.judge
    judge = context.rules.judge
    if pending is not None:
        values = pending_values(pending)
        declared = pipeline_state.declared + (values.get(NEW_BASELINE, 0.0) > 0)
        pipeline_state = structs.replace(pipeline_state, declared=declared)
        place = Place(pending.key.attempt_id, pending.key.step)
        config = f"{pipeline_state.baseline}.{declared}"
        judged = judge.fold(former, Row(place=place, values=values, facts=facts_of(context.run.config), config=config))
    else:
        judged = former
    if is_last:
        judged = judge.finish(judged)
    if judged is former:
        return (), structs.replace(pipeline_state, pending=None)
    state = structs.replace(pipeline_state, judge=judged, pending=None)
    place = judged.places[-1]
    key = BatchKey(place.attempt, place.step, None) if pending is None else pending.key
    at = context.now if pending is None else pending.at
    return _with_alerts(state, context=context, key=key, at=at)


def config_digest(config: Mapping[str, Any]) -> str:
    """Return a digest of what a configuration says of training, without paths, names and seeds."""
    kept = {name: value for name, value in config.items() if not any(word in name.lower() for word in NOT_OF_CONFIG)}
    text = msgspec.json.encode(msgspec.to_builtins(kept, str_keys=True), order="deterministic")
    return blake2b(text, digest_size=8).hexdigest()


def judgement_of(pipeline_state: PipelineState, context: PassContext) -> Judgement | None:
    """Return the judgement of a run up to its newest judged step; None before the first."""
    return judge_run(pipeline_state.judge, context.rules.catalogue)


def _with_alerts(
    pipeline_state: PipelineState, *, context: PassContext, key: BatchKey, at: float
) -> tuple[tuple[Transition, ...], PipelineState]:
    """Open, update and end the alerts of findings, so that those are open which stand and may be sent."""
    judged, tracks, transitions = pipeline_state.judge, dict[str, AlertTrack](), []
    for finding, track in pipeline_state.tracks.items():
        rule = context.rule(finding)
        if rule is not None and rule.is_finding and track.alert is not None and finding not in judged.standing:
            ended = replace(track.alert, state=AlertState.RESOLVED, updated_at=at)
            event = transition_event(ended, key=key)
            transitions.append(Transition(track=QUIET, reason=TransitionReason.RESOLVED, alert=ended, event=event))
            tracks[finding] = QUIET
    for finding, spell in judged.standing.items():
        rule = context.rule(finding)
        if rule is None or judged.rows <= rule.immune_steps or spell.severity is Severity.INFO:
            continue
        transition = _told(pipeline_state.tracks.get(finding, QUIET), rule, spell, context=context, key=key, at=at)
        tracks[finding] = transition.track
        transitions.append(transition)
    return tuple(transitions), pipeline_state.with_tracks(tracks) if tracks else pipeline_state


def _told(track: AlertTrack, rule: Rule, spell: Spell, *, context: PassContext, key: BatchKey, at: float) -> Transition:
    """Return the alert of a finding that stands: a new one, or the open one with its newest values."""
    found = found_of(spell, context.rules.catalogue)
    decisive = spell.evidence[0] if spell.evidence else None
    known = track.alert
    alert = Alert(
        identity=rule.identity(context.run.id),
        run_id=context.run.id,
        rule=rule.name,
        severity=spell.severity,
        state=AlertState.FIRING,
        attempt_id=spell.onset_place.attempt,
        step=spell.onset_place.step,
        update=None,
        since_at=at if known is None else known.since_at,
        updated_at=at,
        value=decisive.value if decisive else 0.0,
        threshold=decisive.limit if decisive else 0.0,
        summary=summary_line(str(context.run.key), headline(found), spell.evidence),
        labels=rule.labels,
    )
    is_new = known is None or known.episode != alert.episode
    event = transition_event(alert, key=key) if is_new else None
    reason = TransitionReason.FIRED if is_new else TransitionReason.FIRING
    return Transition(track=AlertTrack(alert=alert), reason=reason, alert=alert, event=event)


def standing_findings(state: JudgeState) -> frozenset[str]:
    """Return the ids of the findings that stand and warn or page."""
    return frozenset(finding for finding, spell in state.standing.items() if spell.severity is not Severity.INFO)
