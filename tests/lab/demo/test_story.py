"""The demo's summary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.lab.demo.stories import N_STEPS, message, reading
from trmon.lab.demo.calibration import CalibrationSummary
from trmon.lab.demo.story import DemoStory, story_lines, tell_story
from trmon.lab.demo.training import demo_trainings
from trmon.lab.testbed.injection import Injection

CALIBRATED = CalibrationSummary(
    reasons=("calibrated on 2112 sequences of 22 steps: mean_k3 0.02 to 0.004",),
    bound="mean_k3 ≤ 0.004",
    settled=0.003,
    fixed=0.6,
)
ILL, COLLAPSING, HEALTHY = (message(60, run=run) for run in ("ill", "collapsing", "healthy"))


def story(*messages: dict[str, Any]) -> DemoStory:
    """Return the story of these messages."""
    trainings = demo_trainings(Injection.STALE, seed=0, n_steps=N_STEPS)
    readings = {training.name: reading(falls=training.injection is not None) for training in trainings}
    return tell_story(trainings, readings, messages, calibration=CALIBRATED)


@pytest.mark.parametrize(
    ("outcome", "went_well"),
    [
        pytest.param(story(ILL, COLLAPSING), True, id="both failing runs reported"),
        pytest.param(story(ILL), False, id="one of them not reported"),
        pytest.param(story(), False, id="none reported"),
        pytest.param(story(ILL, COLLAPSING, HEALTHY), False, id="the healthy run reported too"),
        pytest.param(story(ILL, COLLAPSING | {"status": "resolved"}), False, id="only an end was reported"),
    ],
)
def test_the_demo_succeeds_if_only_the_failing_runs_were_reported(outcome: DemoStory, went_well: bool) -> None:
    assert outcome.went_well is went_well


def test_the_story_tells_each_run_and_the_calibration() -> None:
    text = "\n".join(story_lines(story(ILL, COLLAPSING)))
    for expected in (
        "The ill run: from step 60 on, the injection 'stale'",
        "The collapsing run: from step 60 on, the injection 'reward'",
        "The healthy run raised no alert",
        "Bounds of the healthy run, measured on its own first steps: calibrated on 2112 sequences of 22 steps",
        "In force at the end: mean_k3 ≤ 0.004; 0.3% of the last 80 steps were rejected",
        "The fixed bounds of trm would have rejected 60.0% of all its steps.",
    ):
        assert expected in text


def test_a_false_alarm_is_named() -> None:
    assert "The healthy run was reported too, wrongly: incident." in story_lines(story(ILL, COLLAPSING, HEALTHY))


def test_a_run_too_short_to_calibrate_is_reported() -> None:
    outcome = replace(story(ILL, COLLAPSING), calibration=replace(CALIBRATED, reasons=()))
    assert "too short to measure its bounds" in story_lines(outcome)[-1]
