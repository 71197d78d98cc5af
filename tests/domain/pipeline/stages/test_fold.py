"""The historical signals of a row, and the state after it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.domain.pipeline.stages.closings import pass_context
from tests.store.builders import batch
from trmon.domain.identity import BatchKey
from trmon.domain.pipeline.draft import ClosingRow
from trmon.domain.pipeline.fold import amend_row, fold_row
from trmon.domain.pipeline.state import PipelineState
from trmon.domain.signals.reward_history import FIRST_STEPS
from trmon.domain.signals.windows import BASELINE_ROWS


def folded(
    pipeline_state: PipelineState, step: int, *, update: int | None = None, made_at: float | None = None, **signals: Any
) -> ClosingRow:
    """Fold a row of a step."""
    row = batch(BatchKey(1, step, update), run_id=1, ordinal=pipeline_state.ordinal + 1, signals=signals)
    return fold_row(ClosingRow(context=pass_context(), pipeline_state=pipeline_state, row=row, made_at=made_at))


def test_the_step_time_is_between_the_first_batches_of_two_steps() -> None:
    pipeline_state, found = PipelineState(), []
    for step, update, made_at in ((0, None, 100.0), (0, 0, 104.0), (1, None, 110.0), (1, 0, 113.0), (3, None, 140.0)):
        made = folded(pipeline_state, step, update=update, made_at=made_at)
        pipeline_state = made.pipeline_state
        found.append(made.row.signals["step_seconds"])
    assert found == pytest.approx([math.nan, math.nan, 10.0, 10.0, 30.0], nan_ok=True)
    assert (pipeline_state.steps, pipeline_state.gaps_seconds, pipeline_state.expected_step_seconds) == (
        3,
        (10.0, 30.0),
        None,
    )


def test_the_expected_step_time_is_the_median_of_the_newest_gaps() -> None:
    pipeline_state = PipelineState()
    for step in range(40):
        pipeline_state = folded(
            pipeline_state, step, made_at=10.0 * step if step < 10 else 90.0 + 60.0 * (step - 9)
        ).pipeline_state
    assert pipeline_state.expected_step_seconds == 60.0


def test_the_sequence_ess_is_relative_to_the_baseline_of_the_run() -> None:
    pipeline_state = PipelineState()
    for step in range(BASELINE_ROWS):
        made = folded(pipeline_state, step, total_ess_seq=0.8)
        pipeline_state = made.pipeline_state
    assert made.row.signals["ess_seq_relative"] == 1.0
    assert folded(pipeline_state, 99, total_ess_seq=0.2).row.signals["ess_seq_relative"] == pytest.approx(0.25)


def test_updates_after_a_rollout_row_do_not_enter_the_windows() -> None:
    pipeline_state = folded(PipelineState(), 0, response_length_mean=10.0).pipeline_state
    pipeline_state = folded(pipeline_state, 0, update=0, response_length_mean=99.0).pipeline_state
    assert pipeline_state.response_length.values == (10.0,)
    assert pipeline_state.gauge_keys == (BatchKey(1, 0, None),)


def test_the_last_update_is_the_gauge_without_a_rollout_row() -> None:
    pipeline_state = folded(PipelineState(), 0, update=0, response_length_mean=10.0).pipeline_state
    pipeline_state = folded(pipeline_state, 0, update=1, response_length_mean=99.0).pipeline_state
    assert pipeline_state.response_length.values == (99.0,)
    assert pipeline_state.gauge_key(1, 0) == BatchKey(1, 0, 1)


def test_a_revision_keeps_the_historical_signals_and_the_state() -> None:
    pipeline_state = folded(PipelineState(), 0, made_at=100.0).pipeline_state
    first = folded(pipeline_state, 1, made_at=110.0, kl=1.0)
    row = batch(first.row.key, run_id=1, ordinal=2, signals={"kl": 2.0})
    again = amend_row(
        ClosingRow(context=pass_context(), pipeline_state=first.pipeline_state, row=row, former=first.row)
    )
    assert (again.row.signals["kl"], again.row.signals["step_seconds"]) == (2.0, 10.0)
    assert again.pipeline_state == first.pipeline_state


def test_a_state_is_the_same_after_a_checkpoint() -> None:
    pipeline_state = PipelineState()
    for step in range(30):
        pipeline_state = folded(
            pipeline_state, step, made_at=10.0 * step, total_ess_seq=0.9, response_length_mean=float(step)
        ).pipeline_state
    assert PipelineState.from_bytes(pipeline_state.to_bytes()) == pipeline_state


@pytest.mark.parametrize(("config", "is_replayed", "relative"), [({}, 0.0, 3.0), ({"router_replay": True}, 1.0, None)])
def test_flips_are_relative_to_the_start_unless_a_replay_is_declared(
    config: dict[str, Any], is_replayed: float, relative: float | None
) -> None:
    usual = pass_context()
    context = replace(usual, run=replace(usual.run, config=config))
    pipeline_state = PipelineState()
    for step in range(120):
        rate = 0.1 if step < FIRST_STEPS else 0.3
        row = batch(BatchKey(1, step, None), run_id=1, ordinal=step + 1, signals={"router_flip_rate": rate})
        made = fold_row(ClosingRow(context=context, pipeline_state=pipeline_state, row=row))
        pipeline_state = made.pipeline_state
    assert made.row.signals["router_replay"] == is_replayed
    assert made.row.signals.get("router_flip_relative") == (relative and pytest.approx(relative, rel=1e-3))


def test_a_run_without_a_router_says_nothing_of_a_replay() -> None:
    assert "router_replay" not in folded(PipelineState(), 0, total_ess_seq=0.8).row.signals
