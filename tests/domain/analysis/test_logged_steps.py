"""The rows of a log as the scalars of a trainer's steps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

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
