"""Stored runs come back as their clients reported them: a replay decides as recorded; the judge reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

from trmon.cli.replay import read_recordings
from trmon.domain.recording import replay_recording
from trmon_research.language import stored
from trmon_research.language.judged import judged
from trmon_research.language.plans import FAULT_AT, N_UPDATES, plans

KNOWN = {run.plan.name: run for run in stored.stored_runs(sealed=False)}


@pytest.mark.parametrize("name", ["dense-int8", "moe-two-updates"])
def test_a_healthy_run_is_silent_and_learns(name: str) -> None:
    found = judged(KNOWN[name])
    assert (found.found.told, found.score.is_ill) == ([], False)
    assert len(found.values["entropy"]) == N_UPDATES
    rewards = list(KNOWN[name].facts["evaluated"].values())
    assert rewards[-1] > rewards[0] + 0.2


def test_a_temperature_that_changes_is_named_within_five_rows_and_the_row_before_was_good() -> None:
    found = judged(KNOWN["temperature-mild"])
    assert (found.score.first, found.score.last_is_right, found.score.early) == ("temperature", True, 0)
    assert found.found.illness is not None
    assert (found.found.told[0].row, found.found.illness.onset, found.found.good) == (FAULT_AT + 4, FAULT_AT, 69)


def test_the_tokens_of_a_run_are_decided_as_recorded(tmp_path: Path) -> None:
    folder = stored.unpack("dense-int8", tmp_path)
    found = replay_recording(read_recordings(folder / "tokens" / "language" / "dense-int8"), n_worst=0)
    assert found.n_differing == 0
    assert {update.step for update in found.updates} == {*range(0, N_UPDATES, stored.TOKENS_EVERY)}


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
