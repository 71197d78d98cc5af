"""Which alerts a run's batches raise, pass by pass: by the rules for them, once, and resolved."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.runner.watched_run import VIGIL, Watched, train


def test_alerts_fire_once_are_delivered_once_and_resolve() -> None:
    watched = Watched()
    train(watched, range(6), health="corrupt")
    ((key, delivery),) = watched.log.deliveries.items()
    assert delivery.receiver == "hook"
    assert key == "hook:1/corrupt_logprobs:1:2:firing"
    assert delivery.body["status"] == "firing"
    assert delivery.body["url"] == "https://trmon.example/runs/math/grpo?step=2"
    assert [alert.rule for alert in watched.view.alerts] == ["corrupt_logprobs"]
    train(watched, range(6, 12))
    assert watched.log.told()[-1] == ("corrupt_logprobs", "resolved", 10)
    assert len(watched.log.deliveries) == 2
    assert not watched.view.alerts


def test_a_healthy_run_raises_nothing() -> None:
    watched = Watched()
    train(watched, range(60))
    assert not watched.log.alerts


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        pytest.param("noisy", {"engine_mismatch", "variance_blowup", "mask_rate"}, id="engines that differ"),
        pytest.param("corrupt", {"corrupt_logprobs"}, id="padded log-probs also show as everything else, later"),
    ],
)
def test_a_broken_run_is_found_by_the_rules_for_it(health: str, expected: set[str]) -> None:
    watched = Watched()
    train(watched, range(30), health=health)
    assert {rule for rule, state, _ in watched.log.told() if state == "firing"} >= expected


def test_only_corrupt_log_probs_fire_within_the_first_twenty_steps() -> None:
    watched = Watched()
    train(watched, range(21), health="corrupt")
    assert {rule for rule, _, _ in watched.log.told()} == {"corrupt_logprobs"}


def test_an_alert_of_a_rule_that_is_gone_ends() -> None:
    watched = Watched()
    train(watched, range(5), health="corrupt")
    rules = tuple(rule for rule in VIGIL.rules() if rule.name != "corrupt_logprobs")
    fresh = Watched(watch_config=replace(VIGIL, rules=lambda: rules))
    fresh.log = watched.log
    fresh.restart()
    fresh.tick(60.0)
    assert [alert.state.value for alert in watched.log.alerts.values()] == ["resolved"]
    assert [delivery.body["status"] for delivery in watched.log.deliveries.values()] == ["firing", "resolved"]
