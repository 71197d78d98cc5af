"""Two trainers under one name, pass by pass, with the clock set by hand."""

from __future__ import annotations

from tests.domain.trainer import finished, report
from tests.runner.watched_run import Watched
from trmon.domain.alerts.alert import AlertState
from trmon.domain.model.severity import Severity
from trmon_client.core import wire

FIRST = {"attempt": "a", "launch": "launch-1"}
SECOND = {"attempt": "b", "launch": "launch-2"}
RULE = "two_trainers"
ENOUGH_SECONDS = 60.0


def beat(watched: Watched, *trainers: dict[str, str], at: float) -> None:
    """Let hearts beat, and a worker that wants to look do so."""
    watched.log.receive(*(wire.Heartbeat(**trainer) for trainer in trainers), at=at)
    for run_id in watched.rounds.due(at):
        assert run_id
        watched.tick(at)


def begun_at(second: float) -> Watched:
    """Return a run whose second trainer began then, after the first one."""
    watched = Watched()
    watched.hear(wire.Start(**FIRST), report(0, **FIRST), at=0.0)
    watched.hear(wire.Start(**SECOND), report(0, **SECOND), at=second)
    return watched


def told(watched: Watched) -> list[tuple[str, str, int]]:
    """Return what the rule has said."""
    return [event for event in watched.log.told() if event[0] == RULE]


def test_two_that_live_side_by_side_for_long_enough_are_told_with_both_names() -> None:
    watched = begun_at(10.0)
    beat(watched, FIRST, SECOND, at=40.0)
    assert told(watched) == []
    beat(watched, FIRST, SECOND, at=10.0 + ENOUGH_SECONDS + 0.5)
    assert told(watched) == [(RULE, "firing", 0)]
    (alert,) = (alert for alert in watched.log.alerts.values() if alert.rule == RULE)
    assert (alert.severity, alert.state, alert.attempt_id) == (Severity.WARN, AlertState.FIRING, 2)
    assert (alert.value, alert.threshold) == (ENOUGH_SECONDS + 0.5, ENOUGH_SECONDS)
    assert alert.summary == (
        "math/grpo: two trainers live under this name for 60.5 s: "
        "attempt a (launch launch-1, rank 0) at step 0 and attempt b (launch launch-2, rank 0) at step 0"
    )
    assert [delivery.body["status"] for delivery in watched.log.deliveries.values()] == ["firing"]


def test_at_its_threshold_it_is_quiet() -> None:
    watched = begun_at(10.0)
    beat(watched, FIRST, SECOND, at=10.0 + ENOUGH_SECONDS)
    assert told(watched) == []


def test_a_plain_restart_is_no_second_trainer_even_while_the_first_ones_spool_drains() -> None:
    watched = Watched()
    watched.hear(wire.Start(**FIRST), report(0, **FIRST), at=0.0)
    beat(watched, FIRST, at=30.0)
    watched.hear(wire.Start(**SECOND), report(0, **SECOND), at=40.0)
    for step in range(1, 12):
        at = 40.0 + 10.0 * step
        watched.hear(report(step, **FIRST), at=at)
        beat(watched, SECOND, at=at)
    assert told(watched) == []


def test_it_resolves_at_once_when_one_of_them_ends() -> None:
    watched = begun_at(10.0)
    beat(watched, FIRST, SECOND, at=80.0)
    watched.hear(wire.Finish(**SECOND, sequence=1, outcome="crashed", finished=finished((0, None, 1))), at=90.0)
    assert told(watched) == [(RULE, "firing", 0), (RULE, "resolved", 0)]


def test_it_resolves_when_one_of_them_is_heard_no_more() -> None:
    watched = begun_at(10.0)
    for at in (40.0, 80.0, 110.0, 140.0, 169.0):
        beat(watched, FIRST, *([SECOND] if at <= 80.0 else []), at=at)
    assert told(watched) == [(RULE, "firing", 0)]
    beat(watched, FIRST, at=175.0)
    assert told(watched) == [(RULE, "firing", 0), (RULE, "resolved", 0)]


def test_it_ends_with_a_run_that_finishes() -> None:
    watched = begun_at(10.0)
    beat(watched, FIRST, SECOND, at=80.0)
    watched.hear(wire.Finish(**SECOND, sequence=1, finished=finished((0, None, 1))), at=90.0)
    beat(watched, FIRST, at=100.0)
    assert told(watched) == [(RULE, "firing", 0), (RULE, "resolved", 0)]
    assert not [alert for alert in watched.view.alerts if alert.rule == RULE]


def test_a_restart_of_the_service_neither_repeats_nor_forgets_it() -> None:
    watched = begun_at(10.0)
    beat(watched, FIRST, SECOND, at=80.0)
    watched.restart()
    watched.tick(100.0)
    beat(watched, FIRST, SECOND, at=110.0)
    assert told(watched) == [(RULE, "firing", 0)]
    beat(watched, FIRST, at=215.0)
    assert told(watched) == [(RULE, "firing", 0), (RULE, "resolved", 0)]


def test_a_second_episode_is_told_again() -> None:
    watched = begun_at(10.0)
    beat(watched, FIRST, SECOND, at=80.0)
    watched.hear(wire.Finish(**SECOND, sequence=1, outcome="crashed"), at=90.0)
    third = {"attempt": "c", "launch": "launch-3"}
    watched.hear(wire.Start(**third), report(0, **third), at=100.0)
    beat(watched, FIRST, third, at=170.0)
    assert [state for _, state, _ in told(watched)] == ["firing", "resolved", "firing"]
    keys = {delivery.dedup_key for delivery in watched.log.deliveries.values() if RULE in delivery.dedup_key}
    assert len(keys) == 3


def test_who_trains_alone_is_looked_at_once() -> None:
    watched = Watched()
    for step in range(20):
        watched.hear(report(step, **FIRST), wire.Heartbeat(**FIRST), at=10.0 * step)
    assert watched.log.looks_at_speakers == 1
