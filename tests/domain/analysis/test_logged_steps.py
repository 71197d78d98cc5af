"""The rows of a log as the scalars of a trainer's steps, and as a run that is judged."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

from trmon.domain.analysis.logged_run import LoggedRun, judged, not_judged, read_logged_run, run_cost
from trmon.domain.analysis.logged_steps import (
    LogDefect,
    LoggedStep,
    LogRow,
    LogTally,
    StepSource,
    logged_steps,
    survey_log,
)
from trmon.domain.errors import InvalidInput
from trmon.domain.findings.catalogue import builtin_catalogue
from trmon.domain.findings.judge import JudgeState, Place

VERL = {"actor/lr": 1e-6, "actor/grad_norm": 0.3, "rollout_corr/k3_kl": 1e-4}


def read(rows: Iterable[Mapping[str, Any]]) -> tuple[list[LoggedStep], list[str]]:
    """Return the steps of rows, one on a line, and their defects."""
    items = [LogRow(row, line) for line, row in enumerate(rows, start=1)]
    found = list(logged_steps(items, survey_log(items, source="log")))
    defects = [str(item) for item in found if isinstance(item, LogDefect)]
    return [item for item in found if isinstance(item, LoggedStep)], defects


def tallied(rows: Iterable[Mapping[str, Any]]) -> LogTally:
    """Return what has been read of rows, one on a line."""
    items = [LogRow(row, line) for line, row in enumerate(rows, start=1)]
    tally = LogTally(survey_log(items, source="log"))
    for item in logged_steps(items, tally.survey):
        tally.add(item)
    return tally


def scalars(row: Mapping[str, Any]) -> Mapping[str, float]:
    [step], _ = read([row])
    return step.scalars


def test_known_names_are_trmons_and_unknown_ones_stay() -> None:
    assert scalars({"step": 3, **VERL, "mine/loss": 2}) == {
        "lr": 1e-6,
        "grad_norm": 0.3,
        "mismatch_kl_k3": 1e-4,
        "mine/loss": 2.0,
    }


@pytest.mark.parametrize(
    ("name", "given", "seconds"),
    [
        ("_timestamp", 1_700_000_000.5, 1_700_000_000.5),
        ("timestamp", "1700000000000", 1_700_000_000.0),
        ("time", "2023-11-14T22:13:20+00:00", 1_700_000_000.0),
    ],
    ids=["seconds", "milliseconds", "ISO 8601"],
)
def test_the_time_of_a_row_is_kept(name: str, given: object, seconds: float) -> None:
    [step], defects = read([{"step": 1, **VERL, name: given}])
    assert (step.logged_at, step.scalars["_timestamp"], defects) == (seconds, seconds, [])


def test_a_time_that_is_a_duration_is_a_metric() -> None:
    [step], _ = read([{"step": 1, **VERL, "time": 12.5}])
    assert (step.logged_at, step.scalars["time"]) == (0.0, 12.5)


def test_steps_that_go_back_are_another_attempt() -> None:
    steps, defects = read({"step": step, **VERL} for step in (1, 2, 3, 2, 3, 4))
    assert [(step.attempt, step.step) for step in steps] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (1, 4)]
    assert defects == ["line 4: goes back to step 2; read as another attempt"]


def test_a_step_that_comes_twice_and_an_older_row_of_other_metrics_are_no_restart() -> None:
    rows = [{"step": 1, "rollout/x": 1}, {"step": 2, "rollout/x": 1}, {"step": 1, **VERL}, {"step": 1, **VERL}]
    steps, defects = read(rows)
    assert ({step.attempt for step in steps}, defects) == ({0}, [])


def test_the_lines_of_two_processes_in_one_file_are_refused() -> None:
    with pytest.raises(InvalidInput, match=r"log: goes back in steps 50 times \(lines 2, 4, 6, 8, 10, \.\.\.\)"):
        read({"step": step + 5 * (line % 2 == 0), **VERL} for step in range(50) for line in (0, 1))


def counted(*rows: LogRow) -> tuple[StepSource, list[tuple[int, int]]]:
    """Return how the steps of rows are counted, and their attempts and steps."""
    survey = survey_log(rows, source="log")
    steps = (item for item in logged_steps(rows, survey) if isinstance(item, LoggedStep))
    return survey.step_source, [(step.attempt, step.step) for step in steps]


def test_bars_count_steps_only_if_they_advance_between_rows() -> None:
    advancing = [LogRow({"reward": 0.5}, bar=bar) for bar in (5, 10, 15)]
    assert counted(*advancing) == (StepSource.BARS, [(0, 5), (0, 10), (0, 15)])
    buffered = [LogRow({"reward": 0.5}, bar=bar) for bar in (5, 10, 10, 10)]
    assert counted(*buffered) == (StepSource.ROWS, [(0, 1), (0, 2), (0, 3), (0, 4)])
    assert counted(LogRow({"reward": 0.5}), *advancing)[0] is StepSource.ROWS


def test_a_line_that_names_a_step_does_not_speak_for_the_many_rows_that_state_none() -> None:
    silent = [LogRow({"reward": 0.5}) for _ in range(4)]
    banner, summary = LogRow({"step": 300, "lr": 1e-6}, line=1), LogRow({"step": 300, "loss": 0.0}, line=7)
    rows = [banner, *silent, summary]
    assert counted(*rows) == (StepSource.ROWS, [(0, 1), (0, 2), (0, 3), (0, 4)])
    left_out = [item for item in logged_steps(rows, survey_log(rows, source="log")) if isinstance(item, LogDefect)]
    assert list(map(str, left_out)) == [
        f"line {line}: states step 300, and most rows none; left out" for line in (1, 7)
    ]
    stated = [LogRow({"step": step, "reward": 0.5}) for step in range(1, 5)]
    assert counted(*silent[:3], *stated) == (StepSource.STATED, [(0, 1), (0, 2), (0, 3), (0, 4)])


def test_rows_of_unknown_names_have_no_say_beside_a_known_metric() -> None:
    printed = LogRow({"hidden": 64, "1": 56})
    assert counted(printed, *(LogRow({"reward": 0.5}, bar=bar) for bar in (5, 10))) == (
        StepSource.BARS,
        [(0, 5), (0, 10)],
    )
    assert counted(*(LogRow({"hidden": 64}, bar=bar) for bar in (5, 10)))[0] is StepSource.BARS


def test_an_evaluation_beside_a_row_has_its_bar() -> None:
    rows = [
        LogRow({"reward": 0.5, "epoch": 0.1}, bar=5),
        LogRow({"eval_reward": 0.6, "epoch": 0.1}, bar=5),
        LogRow({"reward": 0.5, "epoch": 0.2}, bar=10),
    ]
    assert counted(*rows) == (StepSource.BARS, [(0, 5), (0, 5), (0, 10)])


def test_a_metric_that_comes_again_or_another_epoch_begins_a_counted_step() -> None:
    rows = [
        LogRow({"reward": 0.5, "epoch": 0.1}),
        LogRow({"eval_reward": 0.6, "epoch": 0.1}),
        LogRow({"reward": 0.5, "epoch": 0.1}),
        LogRow({"loss": 0.5, "epoch": 0.2}),
        LogRow({"entropy": 0.5}),
    ]
    assert counted(*rows) == (StepSource.ROWS, [(0, 1), (0, 1), (0, 2), (0, 3), (0, 3)])


def test_an_epoch_that_goes_back_is_a_restart_at_the_step_of_that_epoch() -> None:
    rows = [LogRow({"reward": 0.5, "epoch": epoch}) for epoch in (0.1, 0.2, 0.3, 0.4, 0.2, 0.3)]
    assert counted(*rows)[1] == [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3)]


def test_rows_that_repeat_metrics_of_their_step_are_marked() -> None:
    steps, _ = read([{"step": 1, "loss": 0.1}, {"step": 1, "reward": 0.5}, {"step": 1, "loss": 0.2, "epoch": 0.1}])
    assert [step.replaces for step in steps] == [False, False, True]
    steps, _ = read([{"step": 1, "Time": 30.0, "reward": 0.5}, {"step": 1, "Time": 5.0, "loss": 0.2}])
    assert [step.replaces for step in steps] == [False, False]


def test_a_name_means_what_the_user_mapped_it_to() -> None:
    rows = [LogRow({"step": 1, "score": 0.5})]
    survey = survey_log(rows, source="log", mapped={"score": "reward_mean"})
    [step] = logged_steps(rows, survey)
    assert isinstance(step, LoggedStep)
    assert step.scalars == {"reward_mean": 0.5}


def test_what_was_read_is_counted() -> None:
    tally = tallied({"step": step, "loss": 0.1, "mine": 1.0, "note": "a"} for step in (1, 2, 2, 1))
    assert (len(tally.steps), tally.n_attempts, tally.n_replaced) == (3, 2, 1)
    assert (list(tally.unknown), tally.is_whole) == (["mine"], True)
    tally.add(LogDefect(9, "is not a JSON object"))
    assert not tally.is_whole


def test_rows_are_counted_if_none_states_a_step_and_else_reported() -> None:
    steps, defects = read([VERL, VERL])
    assert ([step.step for step in steps], defects) == ([1, 2], [])
    steps, defects = read([{"step": 7, **VERL}, VERL, {"step": -1, **VERL}])
    assert [step.step for step in steps] == [7]
    assert defects == ["line 2: states no step; left out", "line 3: states step -1; left out"]


def test_updates_are_put_into_their_steps() -> None:
    rows = [{"rollout/step": step, "rollout/raw_reward": 0.5} for step in range(3)]
    updates = [{"train/step": update, "train/grad_norm": 0.1, "train/lr-pg_0": 1e-6} for update in range(6)]
    steps, _ = read([*rows, *updates])
    assert [step.step for step in steps] == [0, 1, 2, 0, 0, 1, 1, 2, 2]


def test_what_is_not_a_number_is_reported_once_and_what_is_too_large_each_time() -> None:
    rows = [{"step": step, **VERL, "elapsed": "3m 2s", "big": "1e400"} for step in (1, 2)]
    steps, defects = read(rows)
    assert steps[1].scalars["big"] == math.inf
    assert defects == [
        "line 1: big: '1e400' is too large for a float64; kept as inf",
        "line 1: elapsed: '3m 2s' is not a number; left out",
        "line 2: big: '1e400' is too large for a float64; kept as inf",
    ]


def test_nan_and_infinity_stay_what_they_are() -> None:
    [step], defects = read([{"step": 1, "loss": "nan", "grad_norm": "inf", "reward": None}])
    assert math.isnan(step.scalars["loss"])
    assert "reward_mean" not in step.scalars
    assert (step.scalars["grad_norm"], defects) == (math.inf, [])


def test_a_row_that_sums_up_a_run_gives_no_signal_to_its_last_step() -> None:
    steps, defects = read([{"step": 9, "loss": 0.1}, {"step": 9, "train_runtime": 60.0, "train_loss": 0.5}])
    assert [step.scalars for step in steps] == [{"loss": 0.1}, {"train_runtime": 60.0}]
    assert defects == ["line 2: sums up several steps; left out: loss"]


def test_the_summary_of_a_training_may_state_no_step() -> None:
    tally = tallied([{"step": 9, "loss": 0.1}, {"train_runtime": 60.0, "train_loss": 0.5}])
    assert (tally.is_whole, list(map(str, tally.defects))) == (True, ["line 2: states no step; left out"])
    assert not tallied([{"step": 9, "loss": 0.1}, {"eval_runtime": 60.0, "eval_reward": 0.5}]).is_whole


def test_an_evaluation_gives_its_reward_to_the_step_and_begins_none() -> None:
    rows = [{"reward": 0.5, "epoch": 0.1}, {"eval_reward": 0.7, "eval_loss": 0.1, "eval_runtime": 3.0, "epoch": 0.2}]
    steps, defects = read(rows)
    assert [(step.step, step.scalars.get("eval_reward")) for step in steps] == [(1, None), (1, 0.7)]
    assert defects == []


def test_a_name_that_no_scalar_can_have_is_reported() -> None:
    [step], defects = read([{"step": 1, "loss": 0.1, "a" * 200: 1.0, "tab\t": 1.0}])
    assert step.scalars == {"loss": 0.1}
    assert [defect.rpartition(" is ")[2] for defect in defects] == [
        "not a name of 1 to 128 printable characters; left out"
    ] * 2


def test_a_log_without_rows_is_refused() -> None:
    with pytest.raises(InvalidInput, match="log: has no row of metrics"):
        survey_log([LogDefect(1, "is not a JSON object")], source="log")


def read_run(rows: list[dict[str, Any]]) -> LoggedRun:
    items = [LogRow(row) for row in rows]
    return read_logged_run(items, survey_log(items, source="log.jsonl"), source="log.jsonl")


def judge(rows: list[dict[str, Any]]) -> JudgeState:
    return judged(read_run(rows).rows, builtin_catalogue())


def places(run: LoggedRun) -> list[tuple[int, int]]:
    return [(row.place.attempt, row.place.step) for row in run.rows]


def test_lines_of_a_step_are_one_row_also_where_an_update_is_logged_later() -> None:
    run = read_run(
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
    run = read_run(rows)
    assert places(run)[-4:] == [(1, 8), (2, 3), (2, 4), (2, 5)]
    assert run.column("reward_mean")[-4:] == [0.1, 0.9, 0.9, 0.9]
    assert (run.tally.n_attempts, run.tally.n_replaced) == (2, 0)


def test_nan_before_a_restart_is_named_and_has_ended() -> None:
    rows = [{"step": step, "actor/lr": 1e-6, "actor/grad_norm": math.nan if step > 5 else 1.0} for step in range(9)]
    rows += [{"step": step, "actor/lr": 1e-6, "actor/grad_norm": 1.0} for step in range(4, 32)]
    assert read_run(rows).nonfinite == {"actor/grad_norm": 6}
    state = judge(rows)
    assert (list(state.standing), [spell.finding for spell in state.ended]) == ([], ["not_a_number"])
    assert state.ended[0].onset_place == Place(1, 6)


def test_summaries_and_lines_without_a_known_name_are_no_steps_and_an_evaluation_is_a_gap_in_the_rest() -> None:
    run = read_run(
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
    assert read_run(rows).nonfinite == ({"actor/grad_norm": 1} if is_nan else {})
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
    tally = read_run([{"step": step, **row} for step in range(3)]).tally
    assert (tally.names, list(tally.unknown)) == ({"lr": "actor/lr"}, ["mine/seen"])
    assert list(tally.left_out) == ["sampling/importance_sampling_ratio/mean"]


def test_a_log_without_a_known_name_is_refused_with_what_it_has_and_what_is_known() -> None:
    with pytest.raises(
        InvalidInput, match=r"log\.jsonl: .*it has: foo, bar\. Say .*--map 'foo=reward_mean'\. Known are .*verl, TRL"
    ):
        read_run([{"foo": 1.0, "bar": 2.0}])
    with pytest.raises(InvalidInput, match="no row of metrics"):
        read_run([])


def test_updates_that_are_counted_by_themselves_belong_to_their_step() -> None:
    rollouts = [{"rollout/step": step, "rollout/raw_reward": 0.1 * step} for step in range(5)]
    updates = [{"train/step": count, "train/loss": float(count), "train/ppo_kl": 0.0} for count in range(20)]
    run = read_run(rollouts + updates)
    assert places(run) == [(1, step) for step in range(5)]
    assert run.column("loss") == [3.0, 7.0, 11.0, 15.0, 19.0]


def run(**columns: list[Any]) -> LoggedRun:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return read_run([{"step": step, "reward": 0.5} | row for step, row in enumerate(rows)])


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
    assert (read_run(rows).nonfinite, read_run(rows).sparse) == ({}, ("reward",))
    lost = [{"step": step, "grad_norm": 0.3, "reward": 0.5 if step < 1 else math.nan} for step in range(30)]
    assert (read_run(lost).nonfinite, read_run(lost).sparse) == ({"reward": 1}, ())


def test_numbers_that_no_trainer_sends_are_no_part_of_the_cost() -> None:
    cost = run_cost(run(frac_reward_zero_std=[1e308, 1e308], step_time=[1e308, 1e308]), since=None, gpus=8)
    assert math.isnan(cost.wasted_rollouts)
    assert math.isnan(cost.gpu_hours)
