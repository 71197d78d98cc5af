"""The demo's summary."""

from __future__ import annotations

from typing import Any

import pytest

from trmon.lab.demo.processes import Training, demo_trainings
from trmon.lab.demo.readings import RunReading
from trmon.lab.demo.story import DemoStory, RunStory, run_lines, story_lines, tell_run, tell_story
from trmon.lab.grpo.injections import Injection

N_STEPS = 220
FALLS_AT = 80


def reading(*, falls: bool) -> RunReading:
    """Return the last reading of a run whose rewards rise and then, on request, fall for good."""
    rewards = (0.5 + 0.004 * min(step, 50) - (0.6 if falls and step >= FALLS_AT else 0.0) for step in range(N_STEPS))
    signals = {"reward_mean": tuple(rewards), "mismatch_kl_k3": (0.01, 0.02, float("nan"))}
    return RunReading("finished", tuple(range(N_STEPS)), signals)


def message(step: int, *, run: str = "ill", title: str = "staleness", remedy: str = "sync") -> dict[str, Any]:
    """Return the firing alert of an incident as the receiver stores it."""
    return {
        "status": "firing",
        "reason": "a finding stands",
        "step": step,
        "since_step": step - 2,
        "run": run,
        "rule": "incident",
        "severity": "warn",
        "summary": "it drifts",
        "runbook": "",
        "cause": {"title": title, "last_good_step": step - 3, "remedy": remedy},
    }


TRAINING = Training("ill", seed=0, injection=Injection.STALE, n_steps=N_STEPS)


def run_story(*messages: dict[str, Any], falls: bool = True) -> RunStory:
    """Return the story of a run with these messages."""
    return tell_run(TRAINING, reading(falls=falls), messages)


def run_text(*messages: dict[str, Any], falls: bool = True) -> str:
    """Return the text of the story."""
    return "\n".join(run_lines(run_story(*messages, falls=falls)))


@pytest.mark.parametrize(
    ("told", "went_well"),
    [
        pytest.param([message(60)], True, id="reported before the collapse"),
        pytest.param([message(150)], True, id="reported after the collapse"),
        pytest.param([], False, id="not reported"),
        pytest.param([message(60, run="healthy")], False, id="another run reported"),
        pytest.param([message(60) | {"cause": None}], False, id="reported without a cause"),
    ],
)
def test_a_failing_run_goes_well_if_it_was_reported_with_a_cause(told: list[dict[str, Any]], went_well: bool) -> None:
    assert run_story(*told).went_well is went_well


def test_the_opening_is_the_message_of_the_earliest_step() -> None:
    outcome = run_story(message(70), message(60))
    assert outcome.opening["step"] == 60


def test_the_story_shows_cause_first_step_last_good_step_and_remedy() -> None:
    text, onset = run_text(message(60)), run_story(message(60)).onset
    for expected in (
        "The ill run: from step 60 on, the injection 'stale' grows; the largest kl_k3 between its engines is 0.02.",
        "Detected at step 60 (warn): staleness since step 58, last good step 57.",
        "it drifts",
        "do: sync",
        f"collapsed at step {onset.step}",
        f"{onset.step - 60} steps after the alert",
    ):
        assert expected in text


def test_updates_say_what_changed_and_repeat_no_remedy() -> None:
    worse = message(70) | {"severity": "page", "reason": "it has become a page"}
    revised = message(80, title="engine mismatch", remedy="align") | {"reason": "another finding explains it"}
    text = run_text(message(60), worse, revised)
    assert "Updated at step 70 (page): it has become a page" in text
    assert "Updated at step 80 (warn): the cause is now engine mismatch" in text
    assert (text.count("do: sync"), text.count("do: align")) == (1, 1)


def test_a_late_alert_is_not_reported_as_early() -> None:
    onset = run_story().onset
    assert onset.step >= FALLS_AT
    assert f"{150 - onset.step} steps before the alert" in run_text(message(150))


def test_an_alert_at_the_step_of_the_collapse_says_so() -> None:
    onset = run_story().onset
    assert "at the step of the alert" in run_text(message(onset.step))


def test_a_run_without_an_alert_or_a_collapse_says_so() -> None:
    assert "trmon raised no alert on it" in run_text()
    assert "no collapse within these steps" in run_text(message(60), falls=False)


ILL, COLLAPSING, HEALTHY = (message(60, run=run) for run in ("ill", "collapsing", "healthy"))


def story(*messages: dict[str, Any]) -> DemoStory:
    """Return the story of these messages."""
    trainings = demo_trainings(Injection.STALE, seed=0, n_steps=N_STEPS)
    readings = {training.name: reading(falls=training.injection is not None) for training in trainings}
    return tell_story(trainings, readings, messages)


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


def test_the_story_tells_each_run() -> None:
    text = "\n".join(story_lines(story(ILL, COLLAPSING)))
    for expected in (
        "The ill run: from step 60 on, the injection 'stale'",
        "The collapsing run: from step 60 on, the injection 'reward'",
        "The healthy run raised no alert",
    ):
        assert expected in text


def test_a_false_alarm_is_named() -> None:
    assert "The healthy run was reported too, wrongly: incident." in story_lines(story(ILL, COLLAPSING, HEALTHY))
