"""The stored runs of the lab: each is whole, labelled as its own numbers say, and in the manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from trmon_research.sweep.run_file import EVALUATION_COLUMNS, read_columns, read_record
from trmon_research.sweep.run_labels import label_run
from trmon_research.sweep.sweep_folder import SweepFolder

RUNS = Path(__file__).parents[2] / "data" / "runs"
FILES = sorted(RUNS.glob("*.parquet"))
LARGEST_FILE, LARGEST_FOLDER = 35_000, 15_000_000


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_run_is_whole_and_labelled_as_its_numbers_say(path: Path) -> None:
    record, columns = read_record(path), read_columns(path)
    assert record.config.run_name == path.stem
    assert path.stat().st_size <= LARGEST_FILE
    assert columns["update"].tolist() == list(range(record.outcome.label.n_updates))
    rewards, norms = (columns[name].astype(float).tolist() for name in (EVALUATION_COLUMNS[0], "grad_norm"))
    assert label_run(rewards, norms) == record.outcome.label


def test_the_manifest_has_the_outcome_of_every_file() -> None:
    assert FILES
    finished = {line.run: line.outcome for line in SweepFolder(RUNS).lines() if line.outcome is not None}
    assert finished == {path.stem: read_record(path).outcome for path in FILES}
    assert sum(path.stat().st_size for path in RUNS.iterdir()) < LARGEST_FOLDER
