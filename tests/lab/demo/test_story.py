"""The demo's summary."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from trmon.lab.demo.calibration import CalibrationSummary
from trmon.lab.demo.readings import RunReading
from trmon.lab.demo.story import DemoStory, story_lines, tell_story

N_STEPS = 220
FALLS_AT = 80


CALIBRATED = CalibrationSummary(
    reasons=("calibrated on 2112 sequences of 22 steps: mean_k3 0.02 to 0.004",),
    bound="mean_k3 ≤ 0.004",
    settled=0.003,
    fixed=0.6,
)


def rewards(*, falls: bool) -> tuple[float, ...]:
    """Return rewards that rise and then, on request, fall for good."""
    return tuple(0.5 + 0.004 * min(step, 50) - (0.6 if falls and step >= FALLS_AT else 0.0) for step in range(N_STEPS))


def reading(*, falls: bool) -> RunReading:
    """Return a run's last reading."""
    return RunReading("finished", tuple(range(N_STEPS)), {"reward_mean": rewards(falls=falls)})


def note(step: int, *, run: str = "ill", rule: str = "stale_rollouts", status: str = "firing") -> dict[str, Any]:
    """Return an alert as the receiver stores it."""
    return {
        "status": status,
        "step": step,
        "run": run,
        "rule": rule,
        "severity": "warn",
        "summary": "it drifts",
        "runbook": "sync",
    }


def story(*notes: dict[str, Any], falls: bool = True) -> DemoStory:
    """Return the story of these notifications."""
    readings = {"healthy": reading(falls=False), "ill": reading(falls=falls)}
    return tell_story(readings, notes, healthy="healthy", ill="ill", calibration=CALIBRATED)


@pytest.mark.parametrize(
    ("outcome", "went_well"),
    [
        pytest.param(story(note(60)), True, id="reported before the collapse"),
        pytest.param(story(note(150)), True, id="reported after the collapse"),
        pytest.param(story(), False, id="not reported"),
        pytest.param(story(note(60), falls=False), True, id="reported although the reward held"),
        pytest.param(story(note(60), note(70, run="healthy")), False, id="the healthy run reported too"),
        pytest.param(story(note(60, status="resolved")), False, id="only an end was reported"),
    ],
)
def test_the_demo_succeeds_if_only_the_ill_run_was_reported(outcome: DemoStory, went_well: bool) -> None:
    assert outcome.went_well is went_well


def test_the_first_alert_is_the_one_of_the_earliest_step() -> None:
    outcome = story(note(70, rule="mask_rate"), note(60))
    assert outcome.first is not None
    assert outcome.first["rule"] == "stale_rollouts"


def test_the_story_shows_the_finding_its_step_and_its_fix() -> None:
    outcome = story(note(60))
    text = "\n".join(story_lines(outcome, injection="stale", onset_step=40))
    assert outcome.onset is not None
    for expected in (
        "from step 40 on, the injection 'stale'",
        "Detected at step 60: stale_rollouts (warn).",
        "it drifts",
        "do: sync",
        f"collapsed at step {outcome.onset.step}",
        f"{outcome.onset.step - 60} steps after the alert",
        "The healthy run raised no alert",
        "Bounds of the healthy run, measured on its own first steps: calibrated on 2112 sequences of 22 steps",
        "In force at the end: mean_k3 ≤ 0.004; 0.3% of the last 80 steps were rejected",
        "The fixed bounds of trm would have rejected 60.0% of all its steps.",
    ):
        assert expected in text


def test_a_run_too_short_to_calibrate_is_reported() -> None:
    outcome = replace(story(note(60)), calibration=replace(CALIBRATED, reasons=()))
    assert "too short to measure its bounds" in story_lines(outcome, injection="stale", onset_step=40)[-1]


def test_a_late_alert_is_not_reported_as_early() -> None:
    outcome = story(note(150))
    assert outcome.onset is not None
    assert f"{150 - outcome.onset.step} steps before the alert" in "\n".join(
        story_lines(outcome, injection="lr", onset_step=40)
    )
