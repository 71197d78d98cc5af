"""What a row takes from history and leaves in it."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.domain.stages.closings import watch
from tests.store.builders import batch
from trmon.domain.model.identity import BatchKey
from trmon.domain.signals.windows import BASELINE_ROWS
from trmon.domain.stages.draft import Draft
from trmon.domain.stages.fold import Folded, amend, fold
from trmon.domain.state.pipeline_state import RunMind


def folded(
    mind: RunMind, step: int, *, update: int | None = None, made_at: float | None = None, **signals: Any
) -> Folded:
    """Fold a row of a step."""
    row = batch(BatchKey(1, step, update), run_id=1, ordinal=mind.ordinal + 1, signals=signals)
    return fold(Draft(watch=watch(), mind=mind, row=row, made_at=made_at))


def test_a_step_takes_as_long_as_from_the_first_batch_of_the_one_before() -> None:
    mind, found = RunMind(), []
    for step, update, made_at in ((0, None, 100.0), (0, 0, 104.0), (1, None, 110.0), (1, 0, 113.0), (3, None, 140.0)):
        made = folded(mind, step, update=update, made_at=made_at)
        mind = made.mind
        found.append(made.row.signals["step_seconds"])
    assert found == pytest.approx([math.nan, math.nan, 10.0, 10.0, 30.0], nan_ok=True)
    assert (mind.steps, mind.gaps_seconds, mind.expected_step_seconds) == (3, (10.0, 30.0), None)


def test_the_pace_is_the_median_of_the_newest_gaps() -> None:
    mind = RunMind()
    for step in range(40):
        mind = folded(mind, step, made_at=10.0 * step if step < 10 else 90.0 + 60.0 * (step - 9)).mind
    assert mind.expected_step_seconds == 60.0


def test_the_sequence_ess_is_judged_against_the_runs_own_baseline() -> None:
    mind = RunMind()
    for step in range(BASELINE_ROWS):
        made = folded(mind, step, total_ess_seq=0.8)
        mind = made.mind
    assert made.row.signals["ess_seq_relative"] == 1.0
    assert folded(mind, 99, total_ess_seq=0.2).row.signals["ess_seq_relative"] == pytest.approx(0.25)


def test_updates_after_a_rollout_row_do_not_enter_the_windows() -> None:
    mind = folded(RunMind(), 0, response_length_mean=10.0).mind
    mind = folded(mind, 0, update=0, response_length_mean=99.0).mind
    assert mind.response_length.values == (10.0,)
    assert mind.gauge_keys == (BatchKey(1, 0, None),)


def test_the_last_update_is_the_gauge_where_there_is_no_rollout_row() -> None:
    mind = folded(RunMind(), 0, update=0, response_length_mean=10.0).mind
    mind = folded(mind, 0, update=1, response_length_mean=99.0).mind
    assert mind.response_length.values == (99.0,)
    assert mind.gauge_key(1, 0) == BatchKey(1, 0, 1)


def test_a_revision_keeps_what_history_told_and_leaves_the_mind_alone() -> None:
    mind = folded(RunMind(), 0, made_at=100.0).mind
    first = folded(mind, 1, made_at=110.0, kl=1.0)
    row = batch(first.row.key, run_id=1, ordinal=2, signals={"kl": 2.0})
    again = amend(Draft(watch=watch(), mind=first.mind, row=row, former=first.row))
    assert (again.row.signals["kl"], again.row.signals["step_seconds"]) == (2.0, 10.0)
    assert again.mind == first.mind


def test_a_mind_is_the_same_after_a_checkpoint() -> None:
    mind = RunMind()
    for step in range(30):
        mind = folded(mind, step, made_at=10.0 * step, total_ess_seq=0.9, response_length_mean=float(step)).mind
    assert RunMind.from_bytes(mind.to_bytes()) == mind
