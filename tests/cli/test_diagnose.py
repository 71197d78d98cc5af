"""`trmon diagnose` over files: what it prints and its exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

from tests.fixtures.command import run_here

HEALTHY = {"training/rollout_actor_probs_pearson_corr": 0.999, "actor/lr": 1e-6}
ILL = HEALTHY | {"training/rollout_actor_probs_pearson_corr": 0.4}


def diagnose(*arguments: object) -> Result:
    return run_here("diagnose", *arguments)


@pytest.fixture
def ill_log(tmp_path: Path) -> Path:
    path = tmp_path / "run.jsonl"
    rows = ({"step": step, "data": ILL if step > 20 else HEALTHY} for step in range(40))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    ("fail_on", "status"),
    [("any", 1), ("temperature,engine_mismatch", 1), ("reward_collapse", 0), ("A", 2)],
)
def test_the_exit_status_is_for_continuous_integration(fail_on: str, status: int, ill_log: Path) -> None:
    assert diagnose(ill_log).exit_code == 0
    done = diagnose(ill_log, "--fail-on", fail_on)
    assert (done.exit_code, "trmon: found engine_mismatch (engine mismatch, or stale rollouts)" in done.stderr) == (
        status,
        status == 1,
    )


@pytest.mark.parametrize("text", ["step:12 - rollout_corr/ppl_ratio:2.6e7 - actor/lr:1e-06\n", json.dumps(ILL)])
def test_a_single_line_is_a_log(text: str, tmp_path: Path) -> None:
    path = tmp_path / "line"
    path.write_text(text)
    found = diagnose(path)
    assert found.exit_code == 0
    assert "verl's names" in found.output
    assert "outside the healthy range: " in found.output
    assert json.loads(diagnose(path, "--json").output)["log"]["framework"] == "verl"


def test_the_limits_of_a_rules_file_count_for_a_log(ill_log: Path, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text("- {name: engine_mismatch, disabled: true}\n")
    assert diagnose(ill_log, "--fail-on", "any").exit_code == 1
    assert diagnose(ill_log, "--fail-on", "any", "--rules", rules).exit_code == 0
    rules.write_text("rules: 3\n")
    assert diagnose(ill_log, "--rules", rules).exit_code == 2


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
    assert (
        "engine mismatch, or stale rollouts since step 21 (last good step 20)"
        in run_here("diagnose", "-", answer=log).output
    )
    refused = run_here("diagnose", "-", answer=b"foo:1\n")
    assert (refused.exit_code, "trmon: -: has no row of metrics" in refused.stderr) == (2, True)


def test_the_report_is_json_too(ill_log: Path) -> None:
    document = json.loads(diagnose(ill_log, "--json", "--gpus", 8).output)
    assert document["diagnosis"]["word"] == "finding"
    assert document["diagnosis"]["findings"][0]["finding"] == "engine_mismatch"
    assert document["log"]["n_rows"] == 40
