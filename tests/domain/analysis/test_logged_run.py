"""Runs as logs have them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from trmon.domain.analysis.logged_run import LoggedRun, judged, not_judged, read_logged_run, run_cost
from trmon.domain.analysis.logged_steps import LogRow, survey_log
from trmon.domain.errors import InvalidInput
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.judge import JudgeState, Place


def read(rows: list[dict[str, Any]]) -> LoggedRun:
    items = [LogRow(row) for row in rows]
    return read_logged_run(items, survey_log(items, source="log.jsonl"), source="log.jsonl")


def judge(rows: list[dict[str, Any]]) -> JudgeState:
    return judged(read(rows).rows, builtin_catalogue())


def places(run: LoggedRun) -> list[tuple[int, int]]:
    return [(row.place.attempt, row.place.step) for row in run.rows]


def test_lines_of_a_step_are_one_row_also_where_an_update_is_logged_later() -> None:
    run = read(
        [
            {"rollout/step": 0, "rollout/raw_reward": 0.4},
            {"rollout/step": 1, "rollout/raw_reward": 0.5},
            {"train/step": 1, "train/loss": 0.2, "train/ppo_kl": 0.0},
        ]
    )
    assert run.tally.survey.framework == "slime"
    assert places(run) == [(1, 0), (1, 1)]
    assert run.column("reward_mean") == [0.4, 0.5]
    assert "loss" not in run.rows[0].values


def test_each_start_of_the_trainer_is_an_attempt_and_the_same_step_of_two_is_two_rows() -> None:
    rows = [{"step": step, "reward": 0.1} for step in range(9)] + [{"step": step, "reward": 0.9} for step in (3, 4, 5)]
    run = read(rows)
    assert places(run)[-4:] == [(1, 8), (2, 3), (2, 4), (2, 5)]
    assert run.column("reward_mean")[-4:] == [0.1, 0.9, 0.9, 0.9]
    assert (run.tally.n_attempts, run.tally.n_replaced) == (2, 0)


def test_nan_before_a_restart_is_named_and_has_ended() -> None:
    rows = [{"step": step, "actor/lr": 1e-6, "actor/grad_norm": math.nan if step > 5 else 1.0} for step in range(9)]
    rows += [{"step": step, "actor/lr": 1e-6, "actor/grad_norm": 1.0} for step in range(4, 32)]
    assert read(rows).nonfinite == {"actor/grad_norm": 6}
    state = judge(rows)
    assert (list(state.standing), [spell.finding for spell in state.ended]) == ([], ["not_a_number"])
    assert state.ended[0].onset_place == Place(1, 6)


def test_summaries_and_lines_without_a_known_name_are_no_steps_and_an_evaluation_is_a_gap_in_the_rest() -> None:
    run = read(
        [
            {"step": 1, "reward": 0.1, "loss": 0.5},
            {"step": 7, "eval_reward": 0.9, "eval_runtime": 3.0, "epoch": 1},
            {"step": 9, "system/gpu": 3.0},
            {"step": 1, "train_runtime": 60.0, "train_loss": 9.0, "loss": 9.0},
        ]
    )
    assert places(run) == [(1, 1), (1, 7)]
    np.testing.assert_array_equal(run.column("loss"), [0.5, math.nan])
    np.testing.assert_array_equal(run.column("eval_reward"), [math.nan, 0.9])


@pytest.mark.parametrize("lost", [None, math.nan])
def test_what_was_not_logged_is_no_nan_and_nan_is_one(lost: float | None) -> None:
    rows = [{"step": step, "actor/lr": 1e-6, "actor/grad_norm": lost if step % 10 else 0.3} for step in range(30)]
    is_nan = lost is not None
    assert read(rows).nonfinite == ({"actor/grad_norm": 1} if is_nan else {})
    assert ("not_a_number" in judge(rows).standing) is is_nan


def test_nan_in_the_last_row_of_a_log_needs_no_second_one() -> None:
    rows = [{"step": step, "reward": 0.5, "loss": math.nan if step == 39 else 0.1} for step in range(40)]
    assert list(judge(rows).standing) == ["not_a_number"]
    rows.append({"step": 40, "reward": 0.5, "loss": 0.1})
    assert list(judge(rows).standing) == []


def test_a_finding_without_data_is_said_to_be_one_and_those_with_data_are_not() -> None:
    catalogue = builtin_catalogue()
    state = judge([{"step": step, "reward": 0.5, "grad_norm": 0.3} for step in range(3)])
    lacking = set(not_judged(state, catalogue))
    assert {"engine_mismatch", "entropy_collapse", "cut_at_limit"} <= lacking
    assert lacking.isdisjoint({"reward_collapse", "step_too_large", "not_a_number", "solved"})


def test_what_names_mean_and_what_is_not_understood_is_said_once() -> None:
    row = {"actor/lr": 1e-6, "mine/seen": 0.4, "sampling/importance_sampling_ratio/mean": 1.0}
    tally = read([{"step": step, **row} for step in range(3)]).tally
    assert (tally.names, list(tally.unknown)) == ({"lr": "actor/lr"}, ["mine/seen"])
    assert list(tally.left_out) == ["sampling/importance_sampling_ratio/mean"]


def test_a_log_without_a_known_name_is_refused_with_what_it_has_and_what_is_known() -> None:
    with pytest.raises(
        InvalidInput, match=r"log\.jsonl: .*it has: foo, bar\. Say .*--map 'foo=reward_mean'\. Known are .*verl, TRL"
    ):
        read([{"foo": 1.0, "bar": 2.0}])
    with pytest.raises(InvalidInput, match="no row of metrics"):
        read([])


def test_updates_that_are_counted_by_themselves_belong_to_their_step() -> None:
    rollouts = [{"rollout/step": step, "rollout/raw_reward": 0.1 * step} for step in range(5)]
    updates = [{"train/step": count, "train/loss": float(count), "train/ppo_kl": 0.0} for count in range(20)]
    run = read(rollouts + updates)
    assert places(run) == [(1, step) for step in range(5)]
    assert run.column("loss") == [3.0, 7.0, 11.0, 15.0, 19.0]


def run(**columns: list[Any]) -> LoggedRun:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return read([{"step": step, "reward": 0.5} | row for step, row in enumerate(rows)])


def test_rollouts_without_a_difference_of_rewards_taught_nothing() -> None:
    found = run(frac_reward_zero_std=[0.5, 1.0, 0.75, 0.75], step_time=[900.0] * 4)
    cost = run_cost(found, since=Place(1, 2), gpus=8)
    assert cost.wasted_rollouts == 0.75
    assert cost.gpu_hours == pytest.approx(8.0)
    assert cost.wasted_gpu_hours == pytest.approx(6.0)
    assert cost.ill_gpu_hours == pytest.approx(4.0)
    assert cost.timed_steps == 1.0
    assert math.isnan(run_cost(found, since=None, gpus=8).ill_gpu_hours)


def test_hours_are_not_known_without_gpus_or_durations() -> None:
    without_gpus = run_cost(run(frac_reward_zero_std=[0.5], step_time=[900.0]), since=Place(1, 0), gpus=None)
    without_times = run_cost(run(frac_reward_zero_std=[0.5]), since=None, gpus=8)
    for cost in (without_gpus, without_times):
        assert cost.wasted_rollouts == 0.5
        assert math.isnan(cost.gpu_hours)
        assert math.isnan(cost.wasted_gpu_hours)
        assert math.isnan(cost.ill_gpu_hours)
    assert (without_gpus.timed_steps, without_times.timed_steps) == (1.0, 0.0)


def test_waste_is_not_known_without_groups() -> None:
    cost = run_cost(run(entropy=[0.5, 0.4]), since=None, gpus=1)
    assert math.isnan(cost.wasted_rollouts)


def test_nan_between_numbers_of_a_metric_of_every_tenth_step_was_not_logged() -> None:
    rows = [{"step": step, "grad_norm": 0.3, "reward": math.nan if step % 10 else 0.5} for step in range(30)]
    assert (read(rows).nonfinite, read(rows).sparse) == ({}, ("reward",))
    lost = [{"step": step, "grad_norm": 0.3, "reward": 0.5 if step < 1 else math.nan} for step in range(30)]
    assert (read(lost).nonfinite, read(lost).sparse) == ({"reward": 1}, ())


def test_numbers_that_no_trainer_sends_are_no_part_of_the_cost() -> None:
    cost = run_cost(run(frac_reward_zero_std=[1e308, 1e308], step_time=[1e308, 1e308]), since=None, gpus=8)
    assert math.isnan(cost.wasted_rollouts)
    assert math.isnan(cost.gpu_hours)
