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
from trmon.domain.finding import Finding
from trmon.terminal.run_report import RunReportInfo, parse_failures, report_on_log

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


def log(folder: Path, *, n: int = 120, ill_from: int | None = None, **ill: float) -> Path:
    path = folder / "grpo.jsonl"
    rows = (
        {"step": step, "data": VERL | (ill if ill_from is not None and step >= ill_from else {})} for step in range(n)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def text_of(report: RunReportInfo) -> str:
    out = io.StringIO()
    print_report(report, Console(file=out, width=140))
    return out.getvalue()


def test_a_run_that_broke_says_where_since_when_and_what_to_change(tmp_path: Path) -> None:
    ill = {"training/rollout_actor_probs_pearson_corr": 0.4}
    report = report_on_log(log(tmp_path, ill_from=80, **ill), gpus=8)
    assert report.log.framework == "verl"
    assert report.broke_at is not None
    assert 80 <= report.broke_at <= 84
    assert report.last_good_step == report.broke_at - 1
    assert report.cost.gpu_hours == pytest.approx(12.0)
    text = text_of(report)
    assert f"the run broke at step {report.broke_at} (last good step {report.last_good_step})" in text
    assert "jsonl, 120 rows, steps 0 to 119, verl's names" in text
    assert "verl  actor_rollout_ref.rollout.dtype=float16" in text
    assert "TRL  fp16" not in text
    assert "of 12 GPU-hours were spent after the run broke" in text


def test_steps_that_are_counted_are_said_to_be(tmp_path: Path) -> None:
    path = tmp_path / "console.log"
    path.write_text("{'loss': 0.1, 'reward': 0.5, 'frac_reward_zero_std': 0.75}\n" * 3)
    text = text_of(report_on_log(path))
    assert "console, 3 rows, steps 1 to 3 (rows are counted: none states its step), TRL's names" in text
    assert "75% of the rollouts taught nothing" in text


def test_nan_is_shown_with_its_first_step(tmp_path: Path) -> None:
    report = report_on_log(log(tmp_path, ill_from=100, **{"actor/grad_norm": math.nan}))
    assert report.nonfinite == {"actor/grad_norm": 100}
    assert "NaN or infinity in actor/grad_norm (step 100)" in text_of(report)


def test_nan_in_a_single_line_is_a_finding_and_in_a_run_if_it_recurs(tmp_path: Path) -> None:
    def found(n: int, ill_from: int) -> bool:
        report = report_on_log(log(tmp_path, n=n, ill_from=ill_from, **{"actor/grad_norm": math.nan}))
        return report.diagnosis.primary == Finding.NOT_A_NUMBER.value

    assert found(1, 0)
    assert found(120, 117)
    assert not found(120, 119)


def test_a_reward_that_falls_breaks_a_run_and_names_the_last_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    rows = ({"step": step, "reward": 0.8 if step < 60 else 0.1, "learning_rate": 2e-6} for step in range(120))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = report_on_log(path)
    assert report.diagnosis.primary == Finding.REWARD_COLLAPSE.value
    assert report.last_good_step is not None
    assert 60 <= report.last_good_step <= 72
    assert report.diagnosis.remedy is not None
    assert report.diagnosis.remedy.trl == {"learning_rate": "1e-6"}
    words = f"the last checkpoint at or before step {report.last_good_step}"
    assert report.diagnosis.remedy.trl_in_words == {"resume_from_checkpoint": words}
    assert f"TRL  resume_from_checkpoint: the last checkpoint at or before step {report.last_good_step}" in text_of(
        report
    )


def test_agreement_that_no_finding_reads_is_shown_with_the_limits_of_its_framework(tmp_path: Path) -> None:
    path = log(tmp_path, ill_from=0, **{"training/rollout_probs_diff_mean": 0.0042})
    text = " ".join(text_of(report_on_log(path)).split())
    assert "agreement of the engines: prob_diff_mean 0.0042 (verl: below 0.005 is normal" in text
    assert "agreement of the engines" not in text_of(report_on_log(log(tmp_path)))


@pytest.mark.parametrize(
    ("given", "findings"),
    [
        ("A", [Finding.ENGINE_MISMATCH]),
        ("a', D", [Finding.CORRUPT_LOGPROBS, Finding.VARIANCE_BLOWUP]),
        ("staleness", [Finding.STALENESS]),
        ("step too large,engine_mismatch", [Finding.STEP_TOO_LARGE, Finding.ENGINE_MISMATCH]),
    ],
)
def test_findings_are_named_by_letter_or_title(given: str, findings: list[Finding]) -> None:
    assert list(parse_failures(given)) == findings


def test_any_finding_is_one_but_healthy_and_unknown() -> None:
    assert set(parse_failures("any")) == set(Finding) - {Finding.HEALTHY, Finding.UNKNOWN}


def test_an_unknown_finding_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"'Z' must be any or findings.*A \(engine mismatch\)"):
        parse_failures("A,Z")
