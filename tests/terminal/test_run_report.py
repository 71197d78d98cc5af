"""The report on a run in a log file; `python -m tests.terminal.test_run_report` records the golden texts again."""

from __future__ import annotations

import io
import json
import math
import tempfile
from collections.abc import Iterable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from trmon.cli.diagnose import print_report
from trmon.domain.errors import InvalidInput
from trmon.terminal.run_report import failed, parse_failures, report_on_log

GOLDEN = Path(__file__).with_name("run_reports.json")
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
CUT = {"response_length/clip_ratio": 0.8}
NAN_GRADIENT = {"actor/grad_norm": math.nan}


def verl(*, n: int = 120, ill: range = range(0), **values: float) -> str:
    """Return a log of a healthy run under verl's names, with other values in the ill steps."""
    rising = ({"critic/score/mean": 0.4 + step / 1000} for step in range(n))
    rows = (VERL | reward | (values if step in ill else {}) for step, reward in enumerate(rising))
    return _jsonl({"step": step, "data": row} for step, row in enumerate(rows))


def _jsonl(rows: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _falling() -> str:
    row = {"learning_rate": 2e-6, "frac_reward_zero_std": 0.1, "completions/mean_length": 100.0}
    return _jsonl({"step": step, "reward": 0.8 if step < 60 else 0.1} | row for step in range(120))


def _rarely_logged() -> str:
    lines = [f"{step},{0.5 if step % 10 == 0 else 'NaN'},0.3" for step in range(40)]
    return "\n".join(["step,reward,grad_norm", *lines])


LOGS: dict[str, tuple[str, str]] = {
    "broke": ("grpo.jsonl", verl(ill=range(80, 120), **MISMATCH)),
    "healthy": ("grpo.jsonl", verl()),
    "over": ("grpo.jsonl", verl(n=200, ill=range(60, 90), **MISMATCH)),
    "ill from its first step": ("grpo.jsonl", verl(ill=range(120), **MISMATCH)),
    "outside a healthy range": ("grpo.jsonl", verl(n=5, ill=range(5), **CUT)),
    "outside a healthy range, beside a finding": ("grpo.jsonl", verl(n=5, ill=range(5), **CUT, **NAN_GRADIENT)),
    "counted steps": ("console.log", "{'loss': 0.1, 'reward': 0.5, 'frac_reward_zero_std': 0.75}\n" * 3),
    "two lines of one step": (
        "console.log",
        "step 3: {'train/grad_norm': 0.1, 'train/step': 3}\nrollout 3: {'rollout/raw_reward': 0.5}\n",
    ),
    "NaN where it was not logged": ("mine.csv", _rarely_logged()),
    "a remedy that is a flag": (
        "openrlhf.jsonl",
        _jsonl({"step": step, "vllm_kl": 0.2, "reward": 0.5} for step in range(30)),
    ),
    "episodes of no framework": (
        "mine.jsonl",
        _jsonl({"episode": step, "loss": 0.1, "reward": 0.5} for step in range(3)),
    ),
    "NaN from a step on": ("grpo.jsonl", verl(ill=range(100, 120), **NAN_GRADIENT)),
    "a falling reward, of which the log states no option": ("run.jsonl", _falling()),
    "agreement that no finding reads": (
        "grpo.jsonl",
        verl(ill=range(120), **{"training/rollout_probs_diff_mean": 0.0042}),
    ),
    "little is measured": (
        "run.jsonl",
        json.dumps({"critic/rewards/mean": 0.3, "actor/entropy": 0.5, "training/global_step": 3}),
    ),
}


def texts(folder: Path) -> dict[str, list[str]]:
    """Return the lines of the report on each log, and of the last one also with the findings without data."""
    found = {}
    with chdir(folder):
        for what, (name, text) in LOGS.items():
            Path(name).write_text(text)
            report = report_on_log(Path(name), gpus=8)
            for wanted in (what, f"{what}, verbose")[: 1 + (what == "little is measured")]:
                out = io.StringIO()
                print_report(report, Console(file=out, width=140), is_verbose=wanted.endswith("verbose"))
                found[wanted] = out.getvalue().splitlines()
    return found


@pytest.fixture(scope="module")
def now(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    return texts(tmp_path_factory.mktemp("logs"))


@pytest.mark.parametrize("what", [*LOGS, "little is measured, verbose"])
def test_the_report_says_what_is_recorded(now: dict[str, list[str]], what: str) -> None:
    assert now[what] == json.loads(GOLDEN.read_text())[what]


def test_the_value_of_a_chart_means_what_the_user_says_and_a_refusal_says_how(tmp_path: Path) -> None:
    chart = tmp_path / "chart (1).csv"
    chart.write_text("Wall time,Step,Value\n" + "".join(f"{1.7e9 + step},{step},0.5\n" for step in range(30)))
    with pytest.raises(InvalidInput, match="--map 'chart=reward_mean'"):
        report_on_log(chart)
    for name in ("Value", "chart"):
        assert report_on_log(chart, mapped={name: "reward_mean"}).log.signals == {"reward_mean": "chart"}


def test_findings_fail_a_run_in_which_they_stood_at_some_step(tmp_path: Path) -> None:
    (path := tmp_path / "grpo.jsonl").write_text(LOGS["over"][1])
    report = report_on_log(path)
    assert [found.finding for found in failed(report, parse_failures("any"))] == ["engine_mismatch"]
    assert failed(report, parse_failures("reward_collapse")) == []


def test_what_is_only_noted_fails_a_run_by_its_name_alone(tmp_path: Path) -> None:
    (path := tmp_path / "grpo.jsonl").write_text(verl(ill=range(115, 116), **{"actor/grad_norm": 30.0}))
    report = report_on_log(path)
    assert "gradient_spike" in {found.finding for found in report.diagnosis.findings}
    assert failed(report, parse_failures("any")) == []
    assert [found.finding for found in failed(report, parse_failures("gradient_spike"))] == ["gradient_spike"]


def test_an_unknown_finding_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidInput, match=r"'A' must be any or findings.*engine_mismatch"):
        parse_failures("A,engine_mismatch")


def main() -> None:
    """Record the texts."""
    with tempfile.TemporaryDirectory() as folder:
        GOLDEN.write_text(json.dumps(texts(Path(folder)), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
