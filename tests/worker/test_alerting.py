"""Alerts over a run's batches: which rules fire, once, and when they resolve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.domain.trainer import report
from tests.worker.watched_run import ORIGIN, WATCH_CONFIG, WatchedRun, train
from trmon.domain.findings.catalogue import without
from trmon.domain.pipeline.publish import RunView
from trmon.domain.runs.run import RunState
from trmon_client.core import wire


def test_an_illness_is_delivered_once_as_an_incident_and_resolves_after_quiet_steps() -> None:
    watched = WatchedRun()
    train(watched, range(6), health="corrupt")
    ((key, delivery),) = watched.log.deliveries.items()
    assert delivery.receiver == "hook"
    assert key == "hook:1/incident:1:4:firing"
    told = delivery.notification
    assert (told.status.value, told.alert.since_step, told.alert.severity.value) == ("firing", 0, "page")
    assert told.url == "https://trmon.example/runs/math/grpo?step=0"
    assert told.cause is not None
    assert (told.cause.rule, told.cause.title) == ("corrupt_logprobs", "dropped log-probs")
    assert told.cause.last_good_step is None
    assert "log-prob" in told.cause.remedy
    assert [alert.rule for alert in watched.view.alerts] == ["incident", "corrupt_logprobs"]
    train(watched, range(6, 30))
    assert ("corrupt_logprobs", "resolved", 23) in watched.log.told()
    train(watched, range(30, 60))
    assert [alert.rule for alert in watched.view.alerts] == ["incident"]
    train(watched, range(60, 130))
    assert watched.log.incidents() == [("firing", 4), ("resolved", 88)]
    assert len(watched.log.deliveries) == 2
    assert not watched.view.alerts


def test_a_stop_is_advised_for_the_cause_and_only_while_an_alert_of_the_incident_pages() -> None:
    watched, advised = WatchedRun(), {}
    for health, steps in (("corrupt", range(6)), ("healthy", range(6, 60))):
        train(watched, steps, health=health)
        assert watched.view.advice is not None
        advised[health] = (watched.view.advice.stop, watched.view.advice.reasons.get("stop", ""))
    assert [alert.rule for alert in watched.view.alerts] == ["incident"]
    assert advised["corrupt"][0]
    assert advised["corrupt"][1].startswith("math/grpo: dropped log-probs since step 0")
    assert advised["healthy"] == (False, "")


def test_an_alert_of_a_removed_rule_resolves_and_its_incident_waits_for_quiet_steps() -> None:
    watched = WatchedRun()
    train(watched, range(6), health="corrupt")
    known = WATCH_CONFIG.rules()
    rules = replace(known, catalogue=without(known.catalogue, "corrupt_logprobs"))
    fresh = WatchedRun(watch_config=replace(WATCH_CONFIG, rules=lambda: rules))
    fresh.log = watched.log
    fresh.restart()
    fresh.tick(60.0)
    assert {alert.rule: alert.state.value for alert in watched.log.alerts.values()} == {
        "corrupt_logprobs": "resolved",
        "incident": "firing",
    }


def saved(step: int, **origin: Any) -> wire.Pause:
    told = wire.SavedCheckpoint(step, f"/c/{step}")
    return wire.Pause(**{**ORIGIN, "sent_at": 10.0 * step, **origin}, sequence=step, checkpoint=told)


def test_a_message_names_the_newest_checkpoint_by_the_last_good_step_or_says_that_there_is_none() -> None:
    told = []
    for every in (4, 20):
        watched = WatchedRun()
        for step in range(16):
            train(watched, range(step, step + 1), health="corrupt" if step >= 10 else "healthy")
            if step % every == 0 and step:
                watched.receive(saved(step), at=10.0 * step)
        (delivery,) = watched.log.deliveries.values()
        assert delivery.notification.cause is not None
        told.append(delivery.notification.cause)
        assert watched.view.run.state is RunState.RUNNING
    assert [cause.last_good_step for cause in told] == [9, 9]
    assert told[0].checkpoint == "Checkpoint to go back to: /c/8 (step 8)."
    assert (told[0].checkpoint_step, told[0].checkpoint_path) == (8, "/c/8")
    assert told[1].checkpoint == "No checkpoint is known: the trainer has reported none."


def test_a_restart_that_goes_back_leaves_the_checkpoints_of_the_steps_after_it() -> None:
    watched = WatchedRun()
    train(watched, range(13))
    for step in (4, 8, 12):
        watched.receive(saved(step), at=130.0)
    assert [one.step for one in watched.view.run.checkpoints] == [4, 8, 12]
    again = {"attempt": "b", "launch": "launch-2"}
    watched.receive(report(9, **again), saved(10, **again, sent_at=1e9), at=1000.0)
    assert [one.step for one in watched.view.run.checkpoints] == [4, 8, 10]
    watched.restart()
    watched.receive(report(10, **again), at=1010.0)
    assert [one.step for one in watched.view.run.checkpoints] == [4, 8, 10]


def test_a_checkpoint_is_asked_for_from_the_first_warning_until_one_is_reported() -> None:
    watched, asked = WatchedRun(), []
    for step in range(40):
        train(watched, range(step, step + 1), health="corrupt" if step >= 20 else "healthy")
        if step == 30:
            watched.receive(saved(step), at=10.0 * step)
        advice = watched.view.advice
        asked.append(advice is not None and advice.save_checkpoint)
    first = asked.index(True)
    assert 20 < first < 25
    assert asked[first:30] == [True] * (30 - first)
    assert not any(asked[31:])
    assert advice is not None
    assert advice.incident is not None
    told = advice.document()["incident"]
    assert (told["cause"], told["severity"], told["last_good_step"]) == ("corrupt_logprobs", "page", 19)
    assert (told["checkpoint_step"], told["checkpoint_path"]) == (None, None)
    assert (
        RunView.of(
            watched.view.document(),
            run=watched.view.run,
            row=None,
            policy=watched.view.policy,
            alerts=(),
            updated_at=0.0,
        ).advice
        == advice
    )
