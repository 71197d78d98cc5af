"""The demo: its trainings, its table with and without a terminal, and its summary."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
from msgspec import structs
from rich.console import Console

from tests.notify.posting import notification
from trmon.domain.alerts.alert import AlertState
from trmon.domain.identity import RunKey
from trmon.lab.demo.board import Board
from trmon.lab.demo.processes import Pager, Training, demo_trainings
from trmon.lab.demo.readings import RunReading
from trmon.lab.demo.story import DemoStory, RunStory, run_lines, story_lines, tell_run, tell_story
from trmon.lab.grpo.injections import Injection
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, HttpPost
from trmon.notify.webhook import Webhook


def injections(injection: Injection) -> dict[str, Injection | None]:
    """Return the injection of each training by its run."""
    return {training.name: training.injection for training in demo_trainings(injection, seed=3, n_steps=9)}


def test_a_run_whose_reward_collapses_stands_beside_the_healthy_and_the_ill_one() -> None:
    expected = {"healthy": None, "ill": Injection.STALE, "collapsing": Injection.REWARD}
    assert injections(Injection.STALE) == expected


def test_the_same_illness_is_not_trained_twice() -> None:
    assert injections(Injection.REWARD) == {"healthy": None, "ill": Injection.REWARD}


def test_all_trainings_share_seed_and_steps() -> None:
    assert {(one.seed, one.n_steps) for one in demo_trainings(Injection.PAD, seed=3, n_steps=9)} == {(3, 9)}


def test_the_receiver_stores_every_alert_with_its_run() -> None:
    first = notification(run=RunKey("demo", "ill"))
    second = structs.replace(first, status=AlertState.RESOLVED)
    with Pager() as pager:
        webhook = Webhook(HttpPost(pager.url, allow_hosts=frozenset({"127.0.0.1"})))
        assert webhook.deliver([first, second], now=0.0) == DeliveryResult(DeliveryOutcome.DELIVERED)
        webhook.close()
    assert [(alert["run"], alert["rule"], alert["status"]) for alert in pager.alerts] == [
        ("ill", "mask_rate", "firing"),
        ("ill", "mask_rate", "resolved"),
    ]


BOARD_STEPS = 40


def reading(step: int, *, firing: bool = False, state: str = "running") -> RunReading:
    signals = {"reward_mean": 0.5, "mismatch_kl_k3": 0.01, "mismatch_chi2_token": 0.2, "mismatch_ess_token": math.nan}
    return RunReading(
        state=state,
        steps=tuple(range(step)),
        signals={name: (value,) for name, value in signals.items()},
        threshold="trm: mean_k3 ≤ 0.001",
        firing=("mask_rate",) if firing else (),
    )


def shown(*readings: RunReading, terminal: bool) -> str:
    """Return the output for a run with these readings."""
    written = io.StringIO()
    console = Console(file=written, width=160, force_terminal=terminal, color_system=None)
    with Board(console, n_steps=BOARD_STEPS) as board:
        for one in readings:
            board.show({"ill": one}, seconds=1.0)
    return written.getvalue()


def test_without_a_terminal_a_run_prints_every_twenty_steps_and_at_its_end() -> None:
    steps = [reading(step) for step in (0, 3, 19, 20, 21, 39, 40, 40)]
    assert [line.split()[2] for line in shown(*steps, terminal=False).splitlines()] == ["20/40", "40/40"]


def test_an_unknown_value_is_not_shown_as_a_number() -> None:
    (line,) = shown(reading(20), terminal=False).splitlines()
    assert "reward 0.500  kl_k3 0.01000  chi2 0.200  ESS -  mask rate -  alerts none" in line


def test_a_run_that_has_finished_says_so_since_its_alerts_have_resolved() -> None:
    for terminal in (False, True):
        text = shown(reading(40, state="finished"), terminal=terminal)
        assert "finished" in text
        assert "none" not in text


def test_a_terminal_shows_the_threshold_and_the_firing_rules() -> None:
    text = shown(reading(20, firing=True), terminal=True)
    assert "trm: mean_k3 ≤ 0.001" in text
    assert "mask_rate" in text


def test_a_run_without_a_step_is_warming_up_not_healthy() -> None:
    text = shown(reading(0), terminal=True)
    assert "warming up" in text
    assert "none" not in text


N_STEPS = 220
FALLS_AT = 80


def last_reading(*, falls: bool) -> RunReading:
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
    return tell_run(TRAINING, last_reading(falls=falls), messages)


def run_text(*messages: dict[str, Any], falls: bool = True) -> str:
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
    trainings = demo_trainings(Injection.STALE, seed=0, n_steps=N_STEPS)
    readings = {training.name: last_reading(falls=training.injection is not None) for training in trainings}
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
