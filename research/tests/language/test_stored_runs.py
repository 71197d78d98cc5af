"""Stored runs come back as their clients reported them: `trmon replay` decides as recorded; the judge reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.fixtures.command import run_here
from trmon_research.language import stored
from trmon_research.language.judged import judged
from trmon_research.language.plans import N_UPDATES, plans

KNOWN = {run.plan.name: run for run in stored.stored_runs(sealed=False)}


@pytest.mark.parametrize("name", ["dense-bfloat16", "moe-bfloat16"])
def test_a_healthy_run_is_silent_and_learns(name: str) -> None:
    found = judged(KNOWN[name])
    assert (found.found.told, found.score.is_ill) == ([], False)
    assert len(found.values["entropy"]) == N_UPDATES
    rewards = list(KNOWN[name].facts["evaluated"].values())
    assert rewards[-1] > rewards[0] + 0.2


def test_two_temperatures_from_the_start_are_named_and_have_no_last_good_step() -> None:
    found = judged(KNOWN["temperature-strong"])
    assert (found.score.first, found.score.last_is_right, found.score.early) == ("temperature", True, 0)
    assert found.found.illness is not None
    assert (found.found.illness.onset, found.found.good) == (0, None)


def test_the_tokens_of_a_run_are_decided_as_recorded(tmp_path: Path) -> None:
    folder = stored.unpack("dense-bfloat16", tmp_path)
    shown = run_here("replay", folder / "tokens" / "language" / "dense-bfloat16", "--json", "--worst", "0")
    assert shown.exit_code == 0, shown.stderr
    assert {int(step) for step in range(0, N_UPDATES, stored.TOKENS_EVERY)} == steps_in(shown.stdout)


def steps_in(told: str) -> set[int]:
    return {update["step"] for update in json.loads(told)["updates"]}


def test_the_manifest_says_what_the_plans_say() -> None:
    by_name = {plan.name: plan for plan in plans()}
    assert KNOWN
    for half in (False, True):
        for run in stored.stored_runs(sealed=half):
            plan = by_name[run.plan.name]
            fault = run.facts["fault"] or {}
            assert (fault.get("name"), fault.get("at")) == (
                (plan.fault.name, plan.fault.at) if plan.fault else (None, None)
            )
            assert (run.facts["seed"], run.facts["is_sealed"], run.path.stat().st_size) == (
                plan.seed,
                plan.is_sealed,
                run.facts["bytes"],
            )
