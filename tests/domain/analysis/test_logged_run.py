"""Runs as logs have them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from trmon.domain.diagnosis.history import History
from trmon.domain.finding import Finding

from trmon.domain.analysis.logged_run import BRIDGED_STEPS, LoggedRun, course_of, read_logged_run, run_cost
from trmon.domain.analysis.logged_steps import LogRow, StepSource, survey_log
from trmon.domain.errors import InvalidInput


def read(rows: list[dict[str, Any]]) -> LoggedRun:
    items = [LogRow(row) for row in rows]
    return read_logged_run(items, survey_log(items, source="log.jsonl"), source="log.jsonl")


def test_lines_of_a_step_are_one_row_also_where_an_update_is_logged_later() -> None:
    run = read(
        [
            {"rollout/step": 0, "rollout/raw_reward": 0.4},
            {"rollout/step": 1, "rollout/raw_reward": 0.5},
            {"train/step": 1, "train/loss": 0.2, "train/ppo_kl": 0.0},
        ]
    )
    assert run.tally.survey.framework == "slime"
    assert run.history.steps.tolist() == [0, 1]
    assert run.history.values["reward_mean"].tolist() == [0.4, 0.5]
    assert math.isnan(run.history.values["loss"][0])


def test_a_resumed_run_replaces_the_steps_that_it_repeats_and_those_that_it_has_not_reached() -> None:
    rows = [{"step": step, "reward": 0.1} for step in range(9)] + [{"step": step, "reward": 0.9} for step in (3, 4, 5)]
    run = read(rows)
    assert run.history.values["reward_mean"].tolist() == [0.1, 0.1, 0.1, 0.9, 0.9, 0.9]
    assert (run.tally.n_attempts, run.tally.n_replaced) == (2, 0)


def test_nan_before_a_restart_is_named_and_not_judged() -> None:
    rows = [{"step": step, "actor/lr": 1e-6, "actor/grad_norm": math.nan if step > 5 else 1.0} for step in range(9)]
    run = read([*rows, *({"step": step, "actor/lr": 1e-6, "actor/grad_norm": 1.0} for step in range(4, 12))])
    assert run.nonfinite == {"actor/grad_norm": 6}
    assert run.history.values["nonfinite_steps"][-1] == 0


def test_rows_are_counted_if_none_states_its_step() -> None:
    run = read([{"reward": 0.1}, {"reward": 0.2}])
    assert run.tally.survey.step_source is StepSource.ROWS
    assert run.history.steps.tolist() == [1, 2]


def test_summaries_and_lines_without_a_known_name_are_no_steps_and_an_evaluation_is_a_gap_in_the_rest() -> None:
    run = read(
        [
            {"step": 1, "reward": 0.1, "loss": 0.5},
            {"step": 7, "eval_reward": 0.9, "eval_runtime": 3.0, "epoch": 1},
            {"step": 9, "system/gpu": 3.0},
            {"step": 1, "train_runtime": 60.0, "train_loss": 9.0, "loss": 9.0},
        ]
    )
    assert run.history.steps.tolist() == [1, 7]
    np.testing.assert_array_equal(run.history.values["loss"], [0.5, math.nan])
    np.testing.assert_array_equal(run.history.values["eval_reward"], [math.nan, 0.9])


def test_the_growth_of_lengths_is_derived_as_the_service_derives_it() -> None:
    run = read([{"step": step, "response_length/mean": 100.0 if step < 100 else 150.0} for step in range(120)])
    assert run.history.values["response_length_growth"][-1] == pytest.approx(1.5)


def test_each_name_that_is_not_finite_has_its_first_step() -> None:
    run = read([{"step": step, "actor/grad_norm": math.nan if step > 2 else 1.0} for step in range(5)])
    assert run.nonfinite == {"actor/grad_norm": 3}


def nonfinite_steps(rows: list[dict[str, Any]]) -> float:
    return float(read(rows).history.values["nonfinite_steps"][-1])


def test_a_known_name_that_is_not_finite_counts_from_its_first_step() -> None:
    rows = [{"step": step, "actor/lr": 1e-6, "actor/kl_loss": math.inf if step in (3, 7) else 0.1} for step in range(9)]
    assert nonfinite_steps(rows) == 2
    assert nonfinite_steps([{"step": 0, "actor/grad_norm": None, "actor/lr": 1e-6}]) == 0
    assert nonfinite_steps([{"step": 0, "actor/grad_norm": math.nan, "loss": None}]) == 1


def test_another_name_counts_only_once_it_has_been_finite_and_never_that_of_an_evaluation() -> None:
    def steps(name: str, values: list[float]) -> float:
        return nonfinite_steps([{"step": step, "reward": 0.5, name: value} for step, value in enumerate(values)])

    assert steps("my_metric", [0.1, math.nan, math.nan]) == 2
    assert steps("my_metric", [math.nan, math.nan, math.nan]) == 0
    assert steps("val-core/acc", [0.1, math.nan, math.nan]) == 0


def test_the_reward_of_a_log_is_judged_as_that_of_a_run_of_the_service() -> None:
    rows = [{"step": step, "critic/score/mean": 0.8 if step < 60 else 0.1} for step in range(120)]
    collapse = read(rows).history.values["reward_collapse"]
    assert np.nanmax(collapse[:60]) < 1 < collapse[-1]


def test_what_names_mean_and_what_is_not_understood_is_said_once() -> None:
    row = {"actor/lr": 1e-6, "mine/seen": 0.4, "sampling/importance_sampling_ratio/mean": 1.0}
    tally = read([{"step": step, **row} for step in range(3)]).tally
    assert (tally.names, list(tally.unknown)) == ({"lr": "actor/lr"}, ["mine/seen"])
    assert list(tally.left_out) == ["sampling/importance_sampling_ratio/mean"]


def test_a_metric_that_was_not_logged_is_no_nan() -> None:
    run = read([{"step": step, "actor/lr": 1e-6, "actor/grad_norm": None if step % 10 else 0.3} for step in range(30)])
    assert run.nonfinite == {}
    assert np.isfinite(run.history.values["grad_norm"]).sum() == 3


def test_durations_are_those_of_the_steps() -> None:
    run = read([{"step": 0, "actor/lr": 1e-6, "timing_s/step": 30.0}, {"step": 1, "actor/lr": 1e-6}])
    np.testing.assert_array_equal(run.seconds, [30.0, math.nan])


def test_a_log_without_a_known_name_is_refused_with_what_it_has_and_what_is_known() -> None:
    with pytest.raises(InvalidInput, match=r"log\.jsonl: .*it has: foo, bar\. Known are .*verl, TRL"):
        read([{"foo": 1.0, "bar": 2.0}])
    with pytest.raises(InvalidInput, match="no row of metrics"):
        read([])


def test_updates_that_are_counted_by_themselves_belong_to_their_step() -> None:
    rollouts = [{"rollout/step": step, "rollout/raw_reward": 0.1 * step} for step in range(5)]
    updates = [{"train/step": count, "train/loss": float(count), "train/ppo_kl": 0.0} for count in range(20)]
    run = read(rollouts + updates)
    assert run.history.steps.tolist() == [0, 1, 2, 3, 4]
    assert run.history.values["loss"].tolist() == [3.0, 7.0, 11.0, 15.0, 19.0]


def test_common_names_are_read_where_no_framework_has_them() -> None:
    run = read([{"step": 1, "mean_reward": 0.5, "gradient_norm": 0.2}])
    assert run.tally.survey.framework is None
    assert [run.history.values[name][0] for name in ("reward_mean", "grad_norm")] == [0.5, 0.2]


HEALTHY = {
    "mismatch_kl_k1": 1e-4,
    "mismatch_kl_k3": 1e-4,
    "mismatch_ppl_ratio": 1.0,
    "mismatch_prob_pearson": 0.999,
    "mismatch_prob_diff_max": 0.1,
    "mismatch_chi2_token": 1e-3,
    "mismatch_ess_token": 0.99,
}


def history(n: int, **ill: tuple[float, range]) -> History:
    """Return n healthy steps; signals have another value over a range of steps."""
    values = {name: np.full(n, value) for name, value in HEALTHY.items()}
    for name, (value, steps) in ill.items():
        values.setdefault(name, np.full(n, math.nan))[list(steps)] = value
    return History(np.arange(n), values)


def test_a_healthy_run_did_not_break() -> None:
    course = course_of(history(300))
    assert (course.spans, course.broke_at, course.last_good_step) == ((), None, None)


def test_a_finding_that_stands_says_where_the_run_broke() -> None:
    course = course_of(history(300, mismatch_chi2_token=(0.5, range(200, 300))))
    (span,) = course.spans
    assert (span.finding, span.stands) == (Finding.MODERATE_DRIFT, True)
    assert 200 <= span.first_step <= 204
    assert course.broke_at == span.first_step
    assert course.last_good_step == span.first_step - 1
    assert course.diagnosis.primary is Finding.MODERATE_DRIFT


def test_the_chain_begins_with_the_finding_that_held_when_the_next_one_began() -> None:
    course = course_of(
        history(300, mismatch_chi2_token=(0.5, range(150, 220)), mismatch_prob_pearson=(0.5, range(200, 300)))
    )
    assert [span.finding for span in course.spans] == [Finding.MODERATE_DRIFT, Finding.ENGINE_MISMATCH]
    assert 150 <= course.broke_at <= 154


def test_an_illness_that_was_over_before_the_next_began_is_no_part_of_its_chain() -> None:
    course = course_of(
        history(400, mismatch_chi2_token=(0.5, range(50, 100)), mismatch_prob_pearson=(0.5, range(300, 400)))
    )
    assert course.broke_at >= 300
    assert course.findings == (Finding.MODERATE_DRIFT, Finding.ENGINE_MISMATCH)


def test_a_run_that_recovered_did_not_break() -> None:
    course = course_of(history(300, mismatch_chi2_token=(0.5, range(100, 150))))
    assert [span.stands for span in course.spans] == [False]
    assert course.broke_at is None


def test_a_short_gap_does_not_split_a_finding() -> None:
    gap = history(300, mismatch_chi2_token=(0.5, range(100, 300)))
    gap.values["mismatch_chi2_token"][150 : 150 + BRIDGED_STEPS - 6] = 1e-3
    assert len(course_of(gap).spans) == 1


@pytest.mark.parametrize("onset", [5, 127, 128, 129, 255, 256, 700])
def test_the_step_is_the_same_wherever_the_windows_meet(onset: int) -> None:
    course = course_of(history(1000, mismatch_prob_pearson=(0.5, range(onset, 1000))))
    assert onset <= course.broke_at <= onset + 4


def test_a_run_that_was_ill_from_its_first_step_has_no_good_one() -> None:
    course = course_of(history(60, mismatch_prob_pearson=(0.5, range(60))))
    assert (course.broke_at, course.last_good_step) == (0, None)


def test_a_single_line_has_a_course() -> None:
    course = course_of(History.of_signals({**HEALTHY, "mismatch_prob_pearson": 0.1}, step=9))
    assert (course.broke_at, course.last_good_step) == (9, None)


def run(**columns: list[Any]) -> LoggedRun:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return read([{"step": step, "reward": 0.5} | row for step, row in enumerate(rows)])


def test_rollouts_without_a_difference_of_rewards_taught_nothing() -> None:
    cost = run_cost(run(frac_reward_zero_std=[0.5, 1.0, 0.75, 0.75], step_time=[900.0] * 4), broke_at=2, gpus=8)
    assert cost.wasted_rollouts == 0.75
    assert cost.gpu_hours == pytest.approx(8.0)
    assert cost.wasted_gpu_hours == pytest.approx(6.0)
    assert cost.ill_gpu_hours == pytest.approx(4.0)
    assert cost.timed_steps == 1.0


def test_hours_are_not_known_without_gpus_or_durations() -> None:
    without_gpus = run_cost(run(frac_reward_zero_std=[0.5], step_time=[900.0]), broke_at=0, gpus=None)
    without_times = run_cost(run(frac_reward_zero_std=[0.5]), broke_at=None, gpus=8)
    for cost in (without_gpus, without_times):
        assert cost.wasted_rollouts == 0.5
        assert math.isnan(cost.gpu_hours)
        assert math.isnan(cost.wasted_gpu_hours)
        assert math.isnan(cost.ill_gpu_hours)
    assert (without_gpus.timed_steps, without_times.timed_steps) == (1.0, 0.0)


def test_waste_is_not_known_without_groups() -> None:
    cost = run_cost(run(entropy=[0.5, 0.4]), broke_at=None, gpus=1)
    assert math.isnan(cost.wasted_rollouts)
