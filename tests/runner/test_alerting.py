"""Alerts over a run's batches: which rules fire, once, and when they resolve."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.runner.watched_run import WATCH_CONFIG, WatchedRun, train


def test_an_alert_fires_once_is_delivered_once_and_resolves() -> None:
    watched = WatchedRun()
    train(watched, range(6), health="corrupt")
    ((key, delivery),) = watched.log.deliveries.items()
    assert delivery.receiver == "hook"
    assert key == "hook:1/corrupt_logprobs:1:2:firing"
    assert delivery.notification.status.value == "firing"
    assert delivery.notification.url == "https://trmon.example/runs/math/grpo?step=2"
    assert [alert.rule for alert in watched.view.alerts] == ["corrupt_logprobs"]
    train(watched, range(6, 12))
    assert watched.log.told()[-1] == ("corrupt_logprobs", "resolved", 10)
    assert len(watched.log.deliveries) == 2
    assert not watched.view.alerts


def test_a_healthy_run_raises_no_alert() -> None:
    watched = WatchedRun()
    train(watched, range(60))
    assert not watched.log.alerts


@pytest.mark.parametrize(
    ("health", "expected"),
    [
        pytest.param("noisy", {"engine_mismatch", "variance_blowup", "mask_rate"}, id="engines that differ"),
        pytest.param("corrupt", {"corrupt_logprobs"}, id="padded log-probs also trigger other rules, later"),
    ],
)
def test_a_faulty_run_fires_the_expected_rules(health: str, expected: set[str]) -> None:
    watched = WatchedRun()
    train(watched, range(30), health=health)
    assert {rule for rule, state, _ in watched.log.told() if state == "firing"} >= expected


def test_only_corrupt_log_probs_fire_within_the_first_twenty_steps() -> None:
    watched = WatchedRun()
    train(watched, range(21), health="corrupt")
    assert {rule for rule, _, _ in watched.log.told()} == {"corrupt_logprobs"}


def test_an_alert_of_a_removed_rule_resolves() -> None:
    watched = WatchedRun()
    train(watched, range(5), health="corrupt")
    rules = tuple(rule for rule in WATCH_CONFIG.rules() if rule.name != "corrupt_logprobs")
    fresh = WatchedRun(watch_config=replace(WATCH_CONFIG, rules=lambda: rules))
    fresh.log = watched.log
    fresh.restart()
    fresh.tick(60.0)
    assert [alert.state.value for alert in watched.log.alerts.values()] == ["resolved"]
    assert [delivery.notification.status.value for delivery in watched.log.deliveries.values()] == [
        "firing",
        "resolved",
    ]
