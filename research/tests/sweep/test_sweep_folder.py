"""The folder of a sweep: a run that has a file is not run again, and the manifest says what became of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.grpo.experiments import small
from trmon.domain.errors import InvalidInput
from trmon_research.sweep.sweep_folder import MANIFEST, SweepFolder
from trmon_research.sweep.sweep_summary import summary_table
from trmon_research.sweep.swept_run import SweptRun, sweep_run

PLAN = [small(n_updates=2, n_prompts=1, n_responses=2, seed=seed) for seed in range(3)]


@pytest.fixture(scope="module")
def run() -> SweptRun:
    """The finished run of the plan's first configuration."""
    return sweep_run(PLAN[0])


def test_finished_runs_are_not_missing(run: SweptRun, tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    folder.extend(PLAN)
    assert folder.missing(PLAN) == PLAN
    folder.store(run)
    assert folder.missing(PLAN) == PLAN[1:]
    assert [record.config for record in folder.records()] == PLAN[:1]


def test_the_manifest_lists_all_configurations_with_the_outcomes_there_are(run: SweptRun, tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    folder.extend(PLAN[:2])
    folder.store(run)
    lines = {line.run: line for line in folder.finish()}
    assert {name: line.outcome is not None for name, line in lines.items()} == {
        PLAN[0].run_name: True,
        PLAN[1].run_name: False,
    }
    folder.extend(PLAN)
    again = {line.run: line for line in folder.lines()}
    assert again.keys() == {config.run_name for config in PLAN}
    assert again[PLAN[0].run_name] == lines[PLAN[0].run_name]


def test_an_interrupted_write_leaves_no_run(run: SweptRun, tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    folder.extend(PLAN)
    folder.file_of(PLAN[0].run_name).with_suffix(".partial").write_bytes(run.file[:100])
    assert folder.missing(PLAN) == PLAN
    assert list(folder.records()) == []


def test_a_damaged_manifest_is_named_with_its_line(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"run": "a"}\n')
    with pytest.raises(InvalidInput, match=r"manifest.jsonl, line 1"):
        list(SweepFolder(tmp_path).lines())


def test_a_summary_counts_the_runs_of_each_mechanism(run: SweptRun) -> None:
    table = summary_table([run.record])
    assert [next(iter(column.cells)) for column in table.columns][:4] == ["healthy", "1", "0", "0%"]
