"""The demo's story of one failing run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lab.demo.stories import FALLS_AT, N_STEPS, message, reading
from trmon.lab.demo.run_story import RunStory, run_lines, tell_run
from trmon.lab.demo.training import Training
from trmon.lab.testbed.injection import Injection

TRAINING = Training("ill", seed=0, injection=Injection.STALE, n_steps=N_STEPS)


def story(*messages: dict[str, Any], falls: bool = True) -> RunStory:
    """Return the story of a run with these messages."""
    return tell_run(TRAINING, reading(falls=falls), messages)


def lines(*messages: dict[str, Any], falls: bool = True) -> str:
    """Return the text of the story."""
    return "\n".join(run_lines(story(*messages, falls=falls)))


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
    assert story(*told).went_well is went_well


def test_the_opening_is_the_message_of_the_earliest_step() -> None:
    outcome = story(message(70), message(60))
    assert outcome.opening is not None
    assert outcome.opening["step"] == 60


def test_the_story_shows_cause_first_step_last_good_step_and_remedy() -> None:
    text, onset = lines(message(60)), story(message(60)).onset
    assert onset is not None
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
    text = lines(message(60), worse, revised)
    assert "Updated at step 70 (page): it has become a page" in text
    assert "Updated at step 80 (warn): the cause is now engine mismatch" in text
    assert (text.count("do: sync"), text.count("do: align")) == (1, 1)


def test_a_late_alert_is_not_reported_as_early() -> None:
    onset = story().onset
    assert onset is not None
    assert onset.step >= FALLS_AT
    assert f"{150 - onset.step} steps before the alert" in lines(message(150))


def test_an_alert_at_the_step_of_the_collapse_says_so() -> None:
    onset = story().onset
    assert onset is not None
    assert "at the step of the alert" in lines(message(onset.step))


def test_a_run_without_an_alert_or_a_collapse_says_so() -> None:
    assert "trmon raised no alert on it" in lines()
    assert "no collapse within these steps" in lines(message(60), falls=False)
