"""Fold: a row that comes after all others becomes part of the run's mind, and takes from it what history tells."""

from __future__ import annotations

import math
from dataclasses import dataclass

from msgspec import structs

from trmon.domain.batches.batch import BatchRow
from trmon.domain.model.identity import BatchKey
from trmon.domain.rules.signal_reader import Readout
from trmon.domain.stages.draft import Draft
from trmon.domain.state.pipeline_state import GAPS, GAUGE_KEYS, RunMind

HISTORICAL = ("response_length_growth", "ess_seq_relative", "step_seconds")
"""Signals that only a run's history gives; a revision keeps them as they were."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """The whole row and the mind after it; `folded` is false for a row that came out of its place in the order.

    `began_step` and `is_gauge` say where in its step the row stands.
    """

    draft: Draft
    row: BatchRow
    mind: RunMind
    folded: bool
    began_step: bool = False
    is_gauge: bool = False


def fold(draft: Draft) -> Folded:
    """Return the row with its historical signals, and the mind that remembers it.

    A row is folded if it follows everything folded before, and never again: so the rows alone, in the order of
    their ordinals, say which of them are in the mind.
    """
    mind, row = draft.mind, draft.row
    if not mind.follows(row.key):
        unknown = dict.fromkeys(HISTORICAL, math.nan)
        mind = structs.replace(mind, ordinal=max(mind.ordinal, row.ordinal))
        return Folded(draft=draft, row=_with(row, unknown), mind=mind, folded=False)
    began_step = mind.begins_step(row.key)
    has_rollout_row = row.key.update is None or (not began_step and mind.has_rollout_row)
    is_gauge = row.key.update is None or not has_rollout_row
    mind = structs.replace(_paced(mind, draft, began_step=began_step), has_rollout_row=has_rollout_row)
    mind, historical = _compared(mind, row, is_gauge=is_gauge)
    mind = structs.replace(
        mind,
        ordinal=row.ordinal,
        folded=row.key,
        gauge_keys=_gauge_keys(mind, row, began_step=began_step) if is_gauge else mind.gauge_keys,
    )
    return Folded(
        draft=draft, row=_with(row, historical), mind=mind, folded=True, began_step=began_step, is_gauge=is_gauge
    )


def amend(draft: Draft) -> Folded:
    """Return a revised row with the historical signals it had, and the mind as it was."""
    mind, former = draft.mind, draft.former
    assert former is not None
    kept = {name: former.signals.get(name, math.nan) for name in HISTORICAL}
    scalars = {**former.scalars, **draft.row.scalars}
    return Folded(draft=draft, row=structs.replace(_with(draft.row, kept), scalars=scalars), mind=mind, folded=False)


def _paced(mind: RunMind, draft: Draft, *, began_step: bool) -> RunMind:
    if not began_step:
        return mind
    seconds = draft.row.signals.get("step_seconds", math.nan)
    same_attempt = mind.folded is not None and mind.folded.attempt_id == draft.row.key.attempt_id
    if draft.made_at is not None and mind.began_at is not None and same_attempt:
        seconds = draft.made_at - mind.began_at
    gaps = mind.gaps_seconds if same_attempt else ()
    return structs.replace(
        mind,
        steps=mind.steps + 1,
        first_key=draft.row.key,
        began_at=draft.made_at,
        step_seconds=seconds,
        gaps_seconds=gaps if math.isnan(seconds) else (*gaps, seconds)[-GAPS:],
    )


def _compared(mind: RunMind, row: BatchRow, *, is_gauge: bool) -> tuple[RunMind, dict[str, float]]:
    """The row beside the run's past: for a gauge row the windows take it in first."""
    ess_seq = Readout(row.signals, row.primary_pair)["ess_seq"]
    lengths, baseline = mind.response_length, mind.ess_seq
    if is_gauge:
        lengths = lengths.put(row.key.step, row.signals.get("response_length_mean", math.nan))
        baseline = baseline.put(row.key.step, ess_seq)
    usual = baseline.value
    historical = {
        "response_length_growth": lengths.growth(),
        "ess_seq_relative": ess_seq / usual if usual else math.nan,
        "step_seconds": mind.step_seconds,
    }
    return structs.replace(mind, response_length=lengths, ess_seq=baseline), historical


def _gauge_keys(mind: RunMind, row: BatchRow, *, began_step: bool) -> tuple[BatchKey, ...]:
    kept = mind.gauge_keys if began_step else mind.gauge_keys[:-1]
    return (*kept, row.key)[-GAUGE_KEYS:]


def _with(row: BatchRow, historical: dict[str, float]) -> BatchRow:
    return structs.replace(row, signals={**row.signals, **historical})
