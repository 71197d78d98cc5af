"""`trmon diagnose` over files: what it prints and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

from tests.fixtures.command import run_here

HEALTHY = {"rollout_corr/kl": 1e-4, "actor/lr": 1e-6}
ILL = HEALTHY | {"training/rollout_actor_probs_pearson_corr": 0.2}


def diagnose(*arguments: object) -> Result:
    return run_here("diagnose", *arguments)


@pytest.fixture
def ill_log(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    rows = ({"step": step, "data": ILL if step > 20 else HEALTHY} for step in range(40))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(("fail_on", "status"), [("any", 1), ("A", 1), ("B,A", 1), ("B", 0), ("Z", 2)])
def test_the_exit_status_is_for_continuous_integration(fail_on: str, status: int, ill_log: Path) -> None:
    assert diagnose(ill_log).exit_code == 0
    done = diagnose(ill_log, "--fail-on", fail_on)
    assert (done.exit_code, "trmon: found A (engine mismatch)" in done.stderr) == (status, status == 1)


@pytest.mark.parametrize("name", ["log.jsonl", "state.json", "console.log"])
def test_a_log_without_a_known_name_exits_with_2(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text('{"foo": 1}\n')
    refused = diagnose(path)
    assert refused.exit_code == 2
    assert "no metric with a known name; it has: foo" in refused.stderr


@pytest.mark.parametrize("text", ["step:12 - rollout_corr/ppl_ratio:2.6e7 - actor/lr:1e-06\n", json.dumps(ILL)])
def test_a_single_line_is_a_log(text: str, tmp_path: Path) -> None:
    path = tmp_path / "line"
    path.write_text(text)
    found = diagnose(path)
    assert found.exit_code == 0
    assert "verl's names" in found.output
    assert "A: engine mismatch" in found.output
    assert json.loads(diagnose(path, "--json").output)["log"]["framework"] == "verl"


def test_a_log_without_agreement_names_the_option_of_its_framework_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "line.json"
    path.write_text(json.dumps({"critic/rewards/mean": 0.3, "actor/entropy": 0.5, "training/global_step": 3}))
    [unknown] = [line for line in diagnose(path).output.splitlines() if line.startswith("not known")]
    assert unknown.endswith(
        "verl logs the agreement of its engines with actor_rollout_ref.rollout.calculate_log_probs=true"
    )
    assert "log_batch" not in unknown


def test_names_that_are_not_understood_can_be_mapped_and_are_listed_on_request(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    names = [f"mine/{i}" for i in range(12)]
    rows = ({"step": step, "my_score": 0.5, "grad_norm": 0.3} | dict.fromkeys(names, 1.0) for step in range(3))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    [unknown] = [line for line in diagnose(path).output.splitlines() if line.startswith("not understood")]
    assert unknown.startswith("not understood: my_score (like ")
    assert unknown.endswith("mine/8 and 3 more (--verbose)")
    found = diagnose(path, "--map", "my_score=reward_mean", "--verbose").output
    assert "reward_mean (my_score)" in found
    assert "mine/11" in found


def test_a_log_may_come_from_standard_input(ill_log: Path) -> None:
    log = ill_log.read_bytes()
    assert "A: engine mismatch; the run broke at step" in run_here("diagnose", "-", answer=log).output
    refused = run_here("diagnose", "-", answer=b"foo:1\n")
    assert (refused.exit_code, "trmon: -: has no row of metrics" in refused.stderr) == (2, True)


def test_the_report_is_json_too(ill_log: Path) -> None:
    document = json.loads(diagnose(ill_log, "--json", "--gpus", 8).output)
    assert document["diagnosis"]["primary"] == "A"
    assert document["spans"][0]["stands"] is True


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--example", "a.json"), "give one of them"),
        (("math/grpo", "--gpus", "8"), "needs a log"),
        (("grpo",), "or give a log file"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(arguments: tuple[str, ...], reason: str) -> None:
    refused = diagnose(*arguments)
    assert refused.exit_code == 2
    assert reason in refused.stderr
