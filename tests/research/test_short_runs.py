"""One short run of each study: a sweep and what is done with its runs, collapse, detection, soft masking."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from research.tests.interventions.pairs import plan
from research.tests.sweep.sweep_files import write_sweep_file
from tests.lab.grpo.experiments import small
from trmon_research.__main__ import app
from trmon_research.collapse.moments import scored_moments
from trmon_research.collapse.stored_runs import RUNS, StoredRun
from trmon_research.detection.faults import InjectedFault
from trmon_research.detection.record import SUMS, record_run
from trmon_research.detection.recorded_run import RecordedCourse, RunName
from trmon_research.detection.replay import replay
from trmon_research.interventions.arms import ARMS
from trmon_research.interventions.paired_run import run_pair
from trmon_research.soft_masking.pair_arms import run_pair as run_soft_pair
from trmon_research.sweep.run_file import read_columns, read_record
from trmon_research.sweep.run_labels import label_run
from trmon_research.sweep.swept_run import sweep_run


def run(*arguments: object) -> Result:
    """Run a command of the studies."""
    return CliRunner().invoke(app, list(map(str, arguments)))


def lines(done: Result) -> list[dict[str, Any]]:
    """Return the JSON lines that a command printed."""
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_drawn_configuration_is_trained_measured_and_stored(tmp_path: Path) -> None:
    drawn = lines(run("config", "staleness", "--updates", 4))
    assert (drawn[0]["mechanism"], drawn[0]["n_updates"]) == ("staleness", 4)
    path = tmp_path / "run.parquet"
    path.write_bytes(sweep_run(small(n_updates=4)).file)
    assert read_record(path).config == small(n_updates=4)
    assert read_columns(path)["update"].tolist() == [0, 1, 2, 3]


def test_a_pair_of_an_intervention_has_every_arm() -> None:
    assert [arm.arm for arm in run_pair(plan(small(n_updates=6))).arms] == list(ARMS)


def test_a_pair_of_soft_masking_has_every_arm_from_one_bound() -> None:
    outcome = run_soft_pair(small(n_updates=6), prefix_updates=3)
    assert len(outcome.arms) == 5
    assert outcome.arms["unmasked"].mean_weight == 1.0


def test_a_stored_run_is_labelled_as_its_numbers_say_and_gives_moments_to_predict_at() -> None:
    path = min(RUNS.glob("staleness-*.parquet"))
    stored = StoredRun.of(read_record(path), read_columns(path))
    rewards, norms = (stored.columns[name].astype(float).tolist() for name in ("evaluated_reward", "grad_norm"))
    assert stored.record is not None
    assert label_run(rewards, norms) == stored.record.outcome.label
    moments = scored_moments([stored])
    assert moments.values([stored.features]).shape[0] == len(moments) > 0


def test_a_run_with_a_fault_is_recorded_and_told_when_replayed(tmp_path: Path) -> None:
    name = RunName(SUMS, InjectedFault.NAN.name, 0)
    record_run(name, tmp_path, n_steps=90)
    course = RecordedCourse.open(name, tmp_path)
    assert course is not None
    assert replay(course).n_rows == 2 * 90


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """A folder of a sweep with a run that collapses and one that does not."""
    folder = tmp_path / "runs"
    folder.mkdir()
    write_sweep_file(folder, "ill", rewards=[0.9] * 100 + [0.1] * 100, onset=100)
    write_sweep_file(folder, "well", rewards=[0.9] * 200, onset=None)
    return folder


def test_a_sweep_has_labels_and_says_what_it_lacks(sweep: Path) -> None:
    ill, well, totals = lines(run("backtest", sweep, "--policy", "geo_mask", "--json"))
    assert well["onset"] == {"step": None, "source": "label", "reason": ""}
    assert (ill["onset"]["step"], ill["days"]) == (100, None)
    assert ill["policies"][0]["skipped"] == "files of a sweep hold no sequences"
    assert ill["policies"][0]["mask_rate"] is None
    assert totals["totals"]["rule_sets"][0]["false_pages_per_day"] is None
    assert "reward_collapse" in ill["outcomes"][0]["first_steps"]


def test_pages_of_a_run_that_does_not_collapse_are_counted(sweep: Path, tmp_path: Path) -> None:
    pages = tmp_path / "pages.yml"
    pages.write_text("[{name: pager, severity: page, summary: s, when: {signal: reward_mean, above: -1}}]")
    found = lines(run("backtest", sweep, "--run", "sweep/well", "--rules", pages, "--json"))
    assert found[-1]["totals"]["rule_sets"][0]["n_false_pages"] == 1
