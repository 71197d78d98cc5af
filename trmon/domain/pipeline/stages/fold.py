"""Fold: adds a row to the state of its run, and the historical signals to the row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from trmon.domain.batches.batch import BatchRow
from trmon.domain.diagnosis.history import declares_replay
from trmon.domain.model.identity import BatchKey
from trmon.domain.pipeline.stages.draft import DraftRow
from trmon.domain.rules.signal_reader import SignalReader
from trmon.domain.signals.run_features import FEATURE_SIGNALS
from trmon.domain.state.pipeline_state import GAPS, GAUGE_KEYS, PipelineState

WITH_WINDOWS = ("response_length_growth", "ess_seq_relative", "step_seconds")
HISTORICAL = frozenset((*WITH_WINDOWS, *FEATURE_SIGNALS, "router_replay"))
"""Signals that are computed from the history of a run; a revision keeps their values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedRow:
    """The complete row and the state after it; `folded` is false for a row that arrived out of order.

    `began_step`: the row is the first of its step; `is_gauge`: it is the row that gauges show.
    """

    draft: DraftRow
    row: BatchRow
    pipeline_state: PipelineState
    folded: bool
    began_step: bool = False
    is_gauge: bool = False


def fold_row(draft: DraftRow) -> FoldedRow:
    """Return the row with its historical signals, and the state after it.

    A row is folded only once, and only if it follows all folded rows. So the stored rows alone, in the order of their
    ordinals, determine which of them are folded into the state.
    """
    pipeline_state, row = draft.pipeline_state, draft.row
    if not pipeline_state.follows(row.key):
        unknown = dict.fromkeys(WITH_WINDOWS, math.nan)
        pipeline_state = structs.replace(pipeline_state, ordinal=max(pipeline_state.ordinal, row.ordinal))
        return FoldedRow(draft=draft, row=_with(row, unknown), pipeline_state=pipeline_state, folded=False)
    began_step = pipeline_state.begins_step(row.key)
    has_rollout_row = row.key.update is None or (not began_step and pipeline_state.has_rollout_row)
    is_gauge = row.key.update is None or not has_rollout_row
    pipeline_state = structs.replace(
        _with_step_time(pipeline_state, draft, began_step=began_step), has_rollout_row=has_rollout_row
    )
    pipeline_state, historical = _historical_signals(pipeline_state, row, is_gauge=is_gauge)
    if is_gauge:
        features = pipeline_state.features.with_row(
            row.numbers, row.scalars, begins_step=began_step, is_rollout=row.key.update is None
        )
        pipeline_state = structs.replace(pipeline_state, features=features)
        historical |= features.after.signals()
        if features.after.router_flips.averages:
            historical = _with_declared_replay(historical, draft.context.run.config)
    else:
        features = pipeline_state.features.with_update(row.numbers)
        pipeline_state = structs.replace(pipeline_state, features=features)
    pipeline_state = structs.replace(
        pipeline_state,
        ordinal=row.ordinal,
        folded=row.key,
        gauge_keys=_gauge_keys(pipeline_state, row, began_step=began_step) if is_gauge else pipeline_state.gauge_keys,
    )
    return FoldedRow(
        draft=draft,
        row=_with(row, historical),
        pipeline_state=pipeline_state,
        folded=True,
        began_step=began_step,
        is_gauge=is_gauge,
    )


def _with_declared_replay(historical: dict[str, float], config: Mapping[str, Any]) -> dict[str, float]:
    """Return the signals with whether a replay is declared: it leaves next to no flips, so there is no baseline."""
    if not declares_replay(config):
        return historical | {"router_replay": 0.0}
    kept = {name: value for name, value in historical.items() if name != "router_flip_relative"}
    return kept | {"router_replay": 1.0}


def amend_row(draft: DraftRow) -> FoldedRow:
    """Return a revised row with its former historical signals, and the unchanged state."""
    pipeline_state, former = draft.pipeline_state, draft.former
    assert former is not None
    kept = {name: value for name, value in former.signals.items() if name in HISTORICAL}
    scalars = {**former.scalars, **draft.row.scalars}
    return FoldedRow(
        draft=draft,
        row=structs.replace(_with(draft.row, kept), scalars=scalars),
        pipeline_state=pipeline_state,
        folded=False,
    )


def _with_step_time(pipeline_state: PipelineState, draft: DraftRow, *, began_step: bool) -> PipelineState:
    if not began_step:
        return pipeline_state
    seconds = draft.row.signals.get("step_seconds", math.nan)
    same_attempt = pipeline_state.folded is not None and pipeline_state.folded.attempt_id == draft.row.key.attempt_id
    if draft.made_at is not None and pipeline_state.began_at is not None and same_attempt:
        seconds = draft.made_at - pipeline_state.began_at
    gaps = pipeline_state.gaps_seconds if same_attempt else ()
    return structs.replace(
        pipeline_state,
        steps=pipeline_state.steps + 1,
        first_key=draft.row.key,
        began_at=draft.made_at,
        step_seconds=seconds,
        gaps_seconds=gaps if math.isnan(seconds) else (*gaps, seconds)[-GAPS:],
    )


def _historical_signals(
    pipeline_state: PipelineState, row: BatchRow, *, is_gauge: bool
) -> tuple[PipelineState, dict[str, float]]:
    """Return the historical signals of a row; a gauge row is added to the windows first."""
    ess_seq = SignalReader(row.signals, row.primary_pair)["ess_seq"]
    lengths, baseline = pipeline_state.response_length, pipeline_state.ess_seq
    if is_gauge:
        lengths = lengths.with_value(row.key.step, row.signals.get("response_length_mean", math.nan))
        baseline = baseline.with_value(row.key.step, ess_seq)
    baseline_value = baseline.value
    historical = {
        "response_length_growth": lengths.growth(),
        "ess_seq_relative": ess_seq / baseline_value if baseline_value else math.nan,
        "step_seconds": pipeline_state.step_seconds,
    }
    return structs.replace(pipeline_state, response_length=lengths, ess_seq=baseline), historical


def _gauge_keys(pipeline_state: PipelineState, row: BatchRow, *, began_step: bool) -> tuple[BatchKey, ...]:
    kept = pipeline_state.gauge_keys if began_step else pipeline_state.gauge_keys[:-1]
    return (*kept, row.key)[-GAUGE_KEYS:]


def _with(row: BatchRow, historical: dict[str, float]) -> BatchRow:
    return structs.replace(row, signals={**row.signals, **historical})
