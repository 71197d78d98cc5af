"""Transition: each final finding moves its rule's alert one step on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from trmon.domain.alerts.transitions import QUIET, Track, Transition, advance
from trmon.domain.context.pass_context import Watch
from trmon.domain.rules.rule import Finding, Rule
from trmon.domain.stages.detect import Detected
from trmon.domain.stages.fold import Folded
from trmon.domain.state.pipeline_state import RunMind


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The folded row with what became of the run's alerts, and the mind that remembers it."""

    folded: Folded
    transitions: tuple[Transition, ...]
    mind: RunMind


def transition(detected: Detected) -> Judged:
    """Return the transitions of the row's findings, in their order."""
    made, mind = judge(detected.findings, watch=detected.folded.draft.watch, mind=detected.folded.mind)
    return Judged(folded=detected.folded, transitions=made, mind=mind)


def judge(
    findings: Iterable[tuple[Rule, Finding]], *, watch: Watch, mind: RunMind
) -> tuple[tuple[Transition, ...], RunMind]:
    """Return what findings make of their rules' alerts, and the mind that remembers it."""
    run_id, run = watch.run.id, str(watch.run.key)
    tracks: dict[str, Track] = {}
    made = []
    for rule, finding in findings:
        track = tracks.get(rule.name) or mind.tracks.get(rule.name, QUIET)
        moved = advance(track, finding, rule=rule, run_id=run_id, run=run)
        tracks[rule.name] = moved.track
        made.append(moved)
    return tuple(made), mind.tracking(tracks)
