"""Interventions over a real Ray: each pair once, and none again when the command is repeated."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from msgspec import structs
from rich.console import Console

from trmon.lab.grpo.experiment_config import ExperimentConfig
from trmon_research.interventions.pair_folder import PairFolder
from trmon_research.interventions.run_interventions import InterventionChoices, run_interventions
from trmon_research.interventions.trigger import SignalTrigger
from trmon_research.sweep.run_file import encode_run, read_columns
from trmon_research.sweep.sweep_folder import SweepFolder
from trmon_research.sweep.swept_run import SweptRun, sweep_run

pytestmark = pytest.mark.timeout(600)

AT_ONCE = SignalTrigger(signal="lr", threshold=0.0, for_steps=3)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The folder of a sweep of two runs, of which one is said to have collapsed."""
    folder = SweepFolder(tmp_path / "runs")
    folder.path.mkdir()
    for seed, onset in ((1, 4), (2, None)):
        config = ExperimentConfig(
            task="brackets",
            architecture="gru",
            mechanism="healthy",
            seed=seed,
            warm_start_exact=0.0,
            n_updates=6,
            n_prompts=4,
            n_responses=4,
        )
        run = sweep_run(config)
        folder.store(run)
        outcome = structs.replace(run.record.outcome, label=structs.replace(run.record.outcome.label, onset=onset))
        record = structs.replace(run.record, outcome=outcome)
        columns = read_columns(folder.file_of(config.run_name))
        columns.pop("update")
        folder.store(SweptRun(record, encode_run(record, columns)))
    return folder.path


def test_each_pair_is_run_once(runs: Path, tmp_path: Path) -> None:
    choices = InterventionChoices(
        folder=tmp_path / "pairs", runs=runs, trigger=AT_ONCE, arms=("untouched", "diagnosed"), healthy_at=2, workers=2
    )
    printed = StringIO()
    run_interventions(choices, console=Console(file=printed, width=160))
    records = list(PairFolder(choices.folder).records())
    assert sorted((record.plan.collapses, record.prefix.n_updates) for record in records) == [(False, 2), (True, 3)]
    assert all([arm.arm for arm in record.arms] == ["untouched", "diagnosed"] for record in records)
    assert "The trigger fired in 1 of 1 runs that collapse" in printed.getvalue()

    written = {path: path.stat().st_mtime_ns for path in choices.folder.glob("*.json")}
    run_interventions(choices, console=Console(file=StringIO()))
    assert {path: path.stat().st_mtime_ns for path in choices.folder.glob("*.json")} == written
