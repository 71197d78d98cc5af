"""The alert of two trainers that report under one name."""

from __future__ import annotations

from tests.domain.trainer import finished, report
from tests.worker.watched_run import WatchedRun
from trmon.domain.alerts.alert import AlertState
from trmon.domain.severity import Severity
from trmon_client.core import wire

FIRST = {"attempt": "a", "launch": "launch-1"}
SECOND = {"attempt": "b", "launch": "launch-2"}
RULE = "two_trainers"
ENOUGH_SECONDS = 60.0


def beat(watched: WatchedRun, *trainers: dict[str, str], at: float) -> None:
    """Store heartbeats, and run a pass if one is due."""
    watched.log.receive(*(wire.Heartbeat(**trainer) for trainer in trainers), at=at)
    for run_id in watched.scheduler.pop_due(at):
        assert run_id
        watched.tick(at)


def two_trainers_from(second: float) -> WatchedRun:
    """Return a run whose second trainer starts at a time, the first at 0."""
    watched = WatchedRun()
    watched.receive(wire.Start(**FIRST), report(0, **FIRST), at=0.0)
    watched.receive(wire.Start(**SECOND), report(0, **SECOND), at=second)
    return watched


def alerts(watched: WatchedRun) -> list[tuple[str, str, int]]:
    """Return the rule's alert events."""
    return [event for event in watched.log.told() if event[0] == RULE]


def test_two_trainers_for_longer_than_the_threshold_fire_an_alert_with_both_names() -> None:
    watched = two_trainers_from(10.0)
    for seconds in (30.0, ENOUGH_SECONDS):
        beat(watched, FIRST, SECOND, at=10.0 + seconds)
        assert alerts(watched) == []
    beat(watched, FIRST, SECOND, at=20.0 + ENOUGH_SECONDS)
    assert alerts(watched) == [(RULE, "firing", 0)]
    (alert,) = (alert for alert in watched.log.alerts.values() if alert.rule == RULE)
    assert (alert.severity, alert.state, alert.attempt_id) == (Severity.WARN, AlertState.FIRING, 2)
    assert (alert.value, alert.threshold) == (ENOUGH_SECONDS + 10.0, ENOUGH_SECONDS)
    assert alert.summary == (
        "math/grpo: two trainers have run under this name for 70 s: "
        "attempt a (launch launch-1, rank 0) at step 0 and attempt b (launch launch-2, rank 0) at step 0"
    )
    assert [delivery.notification.status.value for delivery in watched.log.deliveries.values()] == ["firing"]


def test_a_restart_of_a_trainer_does_not_fire_even_while_the_former_spool_drains() -> None:
    watched = WatchedRun()
    watched.receive(wire.Start(**FIRST), report(0, **FIRST), at=0.0)
    beat(watched, FIRST, at=30.0)
    watched.receive(wire.Start(**SECOND), report(0, **SECOND), at=40.0)
    for step in range(1, 12):
        at = 40.0 + 10.0 * step
        watched.receive(report(step, **FIRST), at=at)
        beat(watched, SECOND, at=at)
    assert alerts(watched) == []


def test_it_resolves_at_once_when_one_trainer_finishes() -> None:
    watched = two_trainers_from(10.0)
    beat(watched, FIRST, SECOND, at=80.0)
    watched.receive(wire.Finish(**SECOND, sequence=1, outcome="crashed", finished=finished((0, None, 1))), at=90.0)
    assert alerts(watched) == [(RULE, "firing", 0), (RULE, "resolved", 0)]


def test_it_resolves_when_the_heartbeats_of_one_trainer_stop() -> None:
    watched = two_trainers_from(10.0)
    for at in (40.0, 80.0, 110.0, 140.0, 169.0):
        beat(watched, FIRST, *([SECOND] if at <= 80.0 else []), at=at)
    assert alerts(watched) == [(RULE, "firing", 0)]
    beat(watched, FIRST, at=175.0)
    assert alerts(watched) == [(RULE, "firing", 0), (RULE, "resolved", 0)]


def test_it_resolves_when_the_run_finishes() -> None:
    watched = two_trainers_from(10.0)
    beat(watched, FIRST, SECOND, at=80.0)
    watched.receive(wire.Finish(**SECOND, sequence=1, finished=finished((0, None, 1))), at=90.0)
    beat(watched, FIRST, at=100.0)
    assert alerts(watched) == [(RULE, "firing", 0), (RULE, "resolved", 0)]
    assert not [alert for alert in watched.view.alerts if alert.rule == RULE]


def test_a_restart_of_the_service_neither_repeats_nor_drops_it() -> None:
    watched = two_trainers_from(10.0)
    beat(watched, FIRST, SECOND, at=80.0)
    watched.restart()
    watched.tick(100.0)
    beat(watched, FIRST, SECOND, at=110.0)
    assert alerts(watched) == [(RULE, "firing", 0)]
    beat(watched, FIRST, at=215.0)
    assert alerts(watched) == [(RULE, "firing", 0), (RULE, "resolved", 0)]


def test_a_single_trainer_is_checked_once() -> None:
    watched = WatchedRun()
    for step in range(20):
        watched.receive(report(step, **FIRST), wire.Heartbeat(**FIRST), at=10.0 * step)
    assert watched.log.looks_at_speakers == 1
