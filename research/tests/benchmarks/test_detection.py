"""The measurement of detection: a run with a fault is recorded by the real client and replayed by the real worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from trmon_research.detection.faults import FaultEffect, InjectedFault
from trmon_research.detection.markdown_table import markdown_tables
from trmon_research.detection.outcome import RunOutcome, is_healthy, right_causes, wilson_interval
from trmon_research.detection.record import LAB, SUMS, names_of, record_all, record_run, sums_config
from trmon_research.detection.recorded_run import RecordedCourse, RunName
from trmon_research.detection.replay import Told, replay

NAME = RunName(SUMS, InjectedFault.NAN.name, 0)
STEPS, UPDATES, ONSET = 90, 2, 80


def test_a_run_with_a_fault_is_recorded_once_and_told_when_replayed(tmp_path: Path) -> None:
    record_run(NAME, tmp_path, n_steps=STEPS)
    course = RecordedCourse.open(NAME, tmp_path)
    assert course is not None
    assert (len(course.rewards), course.onset_step) == (STEPS, ONSET)
    told = replay(course)
    assert told.n_rows == STEPS * UPDATES
    assert Told.from_json(told.to_json()) == told
    outcome = RunOutcome.of(course, told)
    assert (outcome.told_before, outcome.openings, outcome.last_cause) == (0, 1, "not_a_number")
    assert outcome.found is not None
    assert outcome.found.since_step == ONSET
    assert any(line.startswith("| NaN | 1 | 0 |") for line in markdown_tables([outcome]))
    written = (course.folder / "course.npz").stat().st_mtime_ns
    assert list(record_all([NAME], tmp_path, n_steps=STEPS, jobs=1)) == [NAME]
    assert (course.folder / "course.npz").stat().st_mtime_ns == written


def test_a_healthy_run_has_no_fault_and_a_fault_has_none_before_its_onset() -> None:
    healthy = sums_config(RunName(SUMS, InjectedFault.HEALTHY_SMALL.name, 0), n_steps=300)
    assert healthy.effect(299) == FaultEffect(engine_noise=0.06)
    quantise = sums_config(RunName(SUMS, InjectedFault.QUANTISE.name, 0), n_steps=300)
    assert quantise.effect(ONSET - 1) == healthy.effect(0)
    assert [quantise.effect(step).weight_bits for step in (ONSET, 299)] == [8, 4]


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"), [(0, 0, 0.0, 1.0), (0, 20, 0.0, 0.1611), (10, 20, 0.2993, 0.7007)]
)
def test_the_interval_of_a_share_is_that_of_wilson(successes: int, n: int, low: float, high: float) -> None:
    assert wilson_interval(successes, n) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize("testbed", [LAB, SUMS])
def test_every_fault_has_findings_that_lead_to_it(testbed: str) -> None:
    names = list(names_of(1, 1, testbed=testbed))
    assert {bool(right_causes(name)) for name in names if not is_healthy(name)} == {True}
    assert not any(right_causes(name) for name in names if is_healthy(name))
