"""The report on a run in a log file."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from trmon.cli.diagnose import print_report
from trmon.domain.errors import InvalidInput
from trmon.terminal.run_report import RunReportInfo, failed, parse_failures, report_on_log

VERL = {
    "actor/lr": 1e-6,
    "actor/grad_norm": 0.3,
    "rollout_corr/kl": 1e-4,
    "rollout_corr/k3_kl": 1e-4,
    "rollout_corr/chi2_token": 1e-3,
    "rollout_corr/ppl_ratio": 1.0,
    "training/rollout_actor_probs_pearson_corr": 0.999,
    "timing_s/step": 45.0,
}
MISMATCH = {"training/rollout_actor_probs_pearson_corr": 0.4}


def log(folder: Path, *, n: int = 120, ill: range = range(0), **values: float) -> Path:
    path = folder / "grpo.jsonl"
    rising = ({"critic/score/mean": 0.4 + step / 1000} for step in range(n))
    rows = (VERL | reward | (values if step in ill else {}) for step, reward in enumerate(rising))
    path.write_text("".join(json.dumps({"step": step, "data": row}) + "\n" for step, row in enumerate(rows)))
    return path


def text_of(report: RunReportInfo, *, is_verbose: bool = False) -> str:
    out = io.StringIO()
    print_report(report, Console(file=out, width=140), is_verbose=is_verbose)
    return out.getvalue()


def test_a_run_that_broke_says_what_is_wrong_since_when_and_what_to_change(tmp_path: Path) -> None:
    report = report_on_log(log(tmp_path, ill=range(80, 120), **MISMATCH), gpus=8)
    found = report.diagnosis
    assert (found.findings[0].finding, found.since_step, found.last_good_step) == ("engine_mismatch", 80, 79)
    assert (report.cost.gpu_hours, report.cost.ill_gpu_hours) == (pytest.approx(12.0), pytest.approx(4.0))
    lines = text_of(report).splitlines()
    assert lines[:2] == [
        f"{report.file}: jsonl, 120 rows, steps 0 to 119, verl's names",
        "engine mismatch, or stale rollouts since step 80 (last good step 79); reward rose",
    ]
    assert "4 of 12 GPU-hours were spent after the run broke" in lines
    [remedy] = [place for place, line in enumerate(lines) if line.startswith("do: ")]
    assert "actor_rollout_ref.rollout.dtype" in lines[remedy + 1]


def test_a_healthy_run_is_healthy_and_names_no_step(tmp_path: Path) -> None:
    report = report_on_log(log(tmp_path))
    assert report.diagnosis.word == "healthy"
    assert (report.diagnosis.since_step, report.diagnosis.remedy, report.diagnosis.unmeasured) == (None, None, ())
    text = text_of(report)
    assert text.splitlines()[1] == "healthy; reward rose"
    assert "since step" not in text
    assert "do:" not in text


def test_an_illness_that_is_over_is_one_line(tmp_path: Path) -> None:
    report = report_on_log(log(tmp_path, n=200, ill=range(60, 90), **MISMATCH))
    assert report.diagnosis.word == "healthy"
    assert [found.finding for found in report.diagnosis.over] == ["engine_mismatch"]
    [line] = [line for line in text_of(report).splitlines() if "engine mismatch" in line]
    assert line.startswith("engine mismatch, or stale rollouts at 60 to ")
    assert line.endswith(", over")


def test_a_run_that_was_ill_from_its_first_step_has_no_good_one(tmp_path: Path) -> None:
    report = report_on_log(log(tmp_path, ill=range(120), **MISMATCH), gpus=8)
    assert (report.diagnosis.since_step, report.diagnosis.last_good_step) == (0, None)
    assert "engine mismatch, or stale rollouts since step 0 (from the start)" in text_of(report).splitlines()[1]
    assert report.cost.ill_gpu_hours == report.cost.gpu_hours


def test_a_value_outside_its_range_is_said_beside_a_finding_that_does_not_read_it(tmp_path: Path) -> None:
    outside = {"response_length/clip_ratio": 0.8}
    text = text_of(report_on_log(log(tmp_path, n=5, ill=range(5), **outside)))
    assert text.splitlines()[1].startswith("outside the healthy range: responses cut at the limit 0.8 (healthy < 0.5)")
    text = text_of(report_on_log(log(tmp_path, n=5, ill=range(5), **outside, **{"actor/grad_norm": math.nan})))
    assert text.splitlines()[1].startswith("not a number")
    assert "outside the healthy range: responses cut at the limit 0.8 (healthy < 0.5)" in text.splitlines()


def test_steps_that_are_counted_are_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_text("{'loss': 0.1, 'reward': 0.5, 'frac_reward_zero_std': 0.75}\n" * 3)
    text = text_of(report_on_log(path))
    assert "console, 3 rows, steps 1 to 3 (rows are counted: most state no step), TRL's names" in text
    assert "75% of the rollouts taught nothing" in text
    assert text.splitlines()[1].startswith("too few rows to judge (3 of 20)")


def test_lines_of_one_step_are_one_row_and_one_step_is_named_once(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_text("step 3: {'train/grad_norm': 0.1, 'train/step': 3}\nrollout 3: {'rollout/raw_reward': 0.5}\n")
    assert text_of(report_on_log(path)).splitlines()[0].endswith(": console, 1 row (2 lines), step 3, slime's names")


def test_nan_of_a_metric_that_was_not_logged_is_said_to_be_that(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    lines = [f"{step},{0.5 if step % 10 == 0 else 'NaN'},0.3" for step in range(40)]
    path.write_text("\n".join(["step,reward,grad_norm", *lines]))
    text = text_of(report_on_log(path))
    assert "NaN where it was not logged: reward" in text.splitlines()
    assert "NaN or infinity" not in text


def test_the_value_of_a_chart_means_what_the_user_says_and_a_refusal_says_how(tmp_path: Path) -> None:
    chart = tmp_path / "chart (1).csv"
    chart.write_text("Wall time,Step,Value\n" + "".join(f"{1.7e9 + step},{step},0.5\n" for step in range(30)))
    with pytest.raises(InvalidInput, match="--map 'chart=reward_mean'"):
        report_on_log(chart)
    for name in ("Value", "chart"):
        assert report_on_log(chart, mapped={name: "reward_mean"}).log.signals == {"reward_mean": "chart"}


def test_a_flag_of_a_remedy_is_named_without_a_value(tmp_path: Path) -> None:
    path = tmp_path / "openrlhf.jsonl"
    path.write_text("".join(json.dumps({"step": step, "vllm_kl": 0.2, "reward": 0.5}) + "\n" for step in range(30)))
    assert "    --vllm.enforce_eager" in text_of(report_on_log(path)).splitlines()


def test_a_log_with_episodes_is_not_of_a_framework_that_counts_them_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps({"episode": step, "loss": 0.1, "reward": 0.5}) + "\n" for step in range(3)))
    assert report_on_log(path).log.framework is None


def test_nan_is_shown_with_its_first_step(tmp_path: Path) -> None:
    report = report_on_log(log(tmp_path, ill=range(100, 120), **{"actor/grad_norm": math.nan}))
    assert report.nonfinite == {"actor/grad_norm": 100}
    assert (report.diagnosis.findings[0].finding, report.diagnosis.last_good_step) == ("not_a_number", 99)
    assert "NaN or infinity in actor/grad_norm (step 100)" in text_of(report)


def test_a_reward_that_falls_names_the_last_checkpoint_and_no_value_that_a_log_does_not_state(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    row = {"learning_rate": 2e-6, "frac_reward_zero_std": 0.1, "completions/mean_length": 100.0}
    rows = ({"step": step, "reward": 0.8 if step < 60 else 0.1} | row for step in range(120))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = report_on_log(path)
    assert (report.diagnosis.framework, report.diagnosis.last_good_step) == ("TRL", 59)
    remedy = report.diagnosis.remedy
    assert remedy is not None
    assert (remedy.options, remedy.options_in_words["learning_rate"]) == ({}, "half of what it is")
    assert "    resume_from_checkpoint: the last checkpoint at or before step 59" in text_of(report).splitlines()


def test_agreement_that_no_finding_reads_is_shown_with_the_limits_of_its_framework(tmp_path: Path) -> None:
    path = log(tmp_path, ill=range(120), **{"training/rollout_probs_diff_mean": 0.0042})
    text = " ".join(text_of(report_on_log(path)).split())
    assert "agreement of the engines: prob_diff_mean 0.0042 (verl: below 0.005 is normal" in text
    assert "agreement of the engines" not in text_of(report_on_log(log(tmp_path)))


def test_what_is_not_measured_is_one_line_and_the_findings_without_data_are_listed_on_request(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"critic/rewards/mean": 0.3, "actor/entropy": 0.5, "training/global_step": 3}))
    report = report_on_log(path)
    [line] = [line for line in text_of(report).splitlines() if line.startswith("not measured")]
    option = "actor_rollout_ref.rollout.calculate_log_probs=true"
    assert line.startswith(f"not measured: agreement (set {option}); GPU-hours (no step times in the log); ")
    assert line.endswith(f"{len(report.not_judged)} findings without data (--verbose)")
    assert "engine_mismatch" in report.not_judged
    assert "engine_mismatch" in text_of(report, is_verbose=True)


def test_findings_fail_a_run_in_which_they_stood_at_some_step(tmp_path: Path) -> None:
    report = report_on_log(log(tmp_path, n=200, ill=range(60, 90), **MISMATCH))
    assert [found.finding for found in failed(report, parse_failures("any"))] == ["engine_mismatch"]
    assert failed(report, parse_failures("reward_collapse")) == []


def test_what_is_only_noted_fails_a_run_by_its_name_alone(tmp_path: Path) -> None:
    report = report_on_log(log(tmp_path, ill=range(115, 116), **{"actor/grad_norm": 30.0}))
    assert "gradient_spike" in {found.finding for found in report.diagnosis.findings}
    assert failed(report, parse_failures("any")) == []
    assert [found.finding for found in failed(report, parse_failures("gradient_spike"))] == ["gradient_spike"]


def test_an_unknown_finding_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"'A' must be any or findings.*engine_mismatch"):
        parse_failures("A,engine_mismatch")
