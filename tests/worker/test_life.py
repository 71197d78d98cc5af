"""State changes of a run: silence, pauses, crashes, ends and returns; and two trainers under one name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.pipeline.closings import parse_rules
from tests.domain.trainer import finished, report
from tests.worker.watched_run import ORIGIN, WATCH_CONFIG, WatchedRun, finish, next_report, train
from trmon.domain.alerts.alert import AlertState
from trmon.domain.identity import BatchKey
from trmon.domain.runs.run import RunState
from trmon.domain.severity import Severity
from trmon.worker.messages import QUANTUM
from trmon_client.core import wire


def trained() -> WatchedRun:
    """Return a run of 25 healthy steps."""
    watched = WatchedRun()
    train(watched, range(25))
    return watched


def delivered(watched: WatchedRun) -> list[str]:
    return [delivery.notification.status.value for delivery in watched.log.deliveries.values()]


def test_a_silent_run_stalls_once_and_its_return_resolves_it() -> None:
    watched = WatchedRun()
    train(watched, range(30))
    watched.tick(290.0 + 119.0)
    assert watched.log.stored_run.state is RunState.RUNNING
    watched.tick(290.0 + 121.0)
    watched.restart()
    watched.tick(290.0 + 500.0)
    assert watched.log.stored_run.state is RunState.STALLED
    watched.receive(report(30, finished=finished((29, None, 1))), at=900.0)
    assert watched.log.stored_run.state is RunState.RUNNING
    assert watched.log.told() == [("stalled", "firing", 29), ("stalled", "resolved", 29)]
    assert delivered(watched) == ["firing", "resolved"]


def test_downtime_of_the_service_does_not_count_as_silence() -> None:
    watched = trained()
    watched.restart()
    watched.tick(10_000.0)
    assert watched.log.stored_run.state is RunState.RUNNING
    watched.tick(10_121.0)
    assert watched.log.stored_run.state is RunState.STALLED


def test_heartbeats_after_the_newest_report_extend_the_limit_to_the_longer_one() -> None:
    watched = trained()
    for at in range(270, 900, 30):
        watched.receive(wire.Heartbeat(**ORIGIN), at=float(at))
        expected = RunState.RUNNING if at <= 240 + 600 else RunState.STALLED
        assert watched.log.stored_run.state is expected, at


def test_a_crash_pages_and_a_restart_resolves_it() -> None:
    watched = trained()
    watched.receive(finish(24, outcome="crashed", error="CUDA out of memory"), at=250.0)
    assert watched.log.stored_run.state is RunState.CRASHED
    watched.receive(report(3, rank=0, launch="launch-1", chunk=1), at=251.0)
    assert watched.log.stored_run.state is RunState.CRASHED, "a late report of the launch that ended"
    watched.restart()
    watched.receive(report(25, launch="launch-2"), at=400.0)
    assert watched.log.stored_run.state is RunState.RUNNING
    assert watched.log.told() == [("crashed", "firing", 24), ("crashed", "resolved", 24)]
    errors = [event.data["error"] for event in watched.log.events if event.kind == "state"]
    assert errors == ["CUDA out of memory", ""]
    assert watched.log.deliveries["hook:1/crashed:1:silence-240.000:firing"].notification.alert.severity.value == "page"


def test_a_finished_run_resolves_its_alerts_and_sends_the_notice() -> None:
    watched = WatchedRun()
    train(watched, range(25), health="corrupt")
    delivered = set(watched.log.deliveries)
    watched.receive(finish(24), at=250.0)
    assert watched.log.told()[-1][1] == "resolved"
    notifications = [delivery.notification for key, delivery in watched.log.deliveries.items() if key not in delivered]
    assert {(one.status.value, one.reason) for one in notifications} == {("resolved", "the run has finished")}
    assert not watched.log.open_alerts(1)


def test_a_run_that_is_read_after_its_end_records_its_alerts_and_its_incident() -> None:
    watched = WatchedRun()
    for step in range(30):
        watched.log.receive(next_report(step, health="corrupt"), at=10.0 * step)
    watched.receive(finish(29), at=300.0)
    assert ("corrupt_logprobs", "firing", 3) in watched.log.told()
    assert watched.log.incidents() == [("firing", 4), ("resolved", 29)]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_trainer_that_crashes_again_before_it_reports_pages_again(restarts: bool) -> None:
    watched = trained()
    watched.receive(finish(24, outcome="crashed"), at=250.0)
    watched.receive(start("launch-2", sent_at=6000.0), at=300.0)
    if restarts:
        watched.restart()
        watched.tick(310.0)
    watched.receive(finish(24, outcome="crashed", launch="launch-2", sent_at=6001.0), at=320.0)
    assert [state for _, state, _ in watched.log.told()] == ["firing", "resolved", "firing"]
    assert delivered(watched) == ["firing", "resolved", "firing"]


def test_each_return_of_a_trainer_that_hangs_before_it_reports_resolves_its_stall() -> None:
    watched = trained()
    for i in range(3):
        watched.tick(1000.0 * i + 500.0)
        watched.receive(start(f"launch-{i + 2}", sent_at=6000.0 + i), at=1000.0 * i + 600.0)
    assert [state for _, state, _ in watched.log.told()] == ["firing", "resolved"] * 3
    assert len(watched.log.deliveries) == 6


def test_each_end_of_a_run_that_hangs_at_its_last_step_resolves_its_stall() -> None:
    watched = trained()
    for i in range(2):
        launch, sent_at = f"launch-{i + 2}", 6000.0 + i
        watched.receive(start(launch, sent_at=sent_at), at=1000.0 * i + 600.0)
        watched.tick(1000.0 * i + 900.0)
        watched.receive(finish(24, launch=launch, sent_at=sent_at), at=1000.0 * i + 1000.0)
    assert [state for _, state, _ in watched.log.told()] == ["firing", "resolved"] * 2
    assert len(watched.log.deliveries) == 4


@pytest.mark.parametrize("before", [QUANTUM - 2, QUANTUM - 1, QUANTUM])
def test_the_end_of_a_run_resolves_its_alerts_wherever_a_page_ends(before: int) -> None:
    watched = WatchedRun()
    train(watched, range(25), health="corrupt")
    scalars = wire.Scalars(**ORIGIN, sequence=1, step=24, values={"loss": 1.0})
    watched.receive(*[scalars] * before, finish(24), at=250.0)
    assert watched.log.stored_run.state is RunState.FINISHED
    assert not watched.log.open_alerts(1)
    commits = len(watched.log.commits)
    watched.restart()
    watched.tick(260.0)
    assert len(watched.log.commits) == commits, "the end is written once"


def test_the_last_step_before_a_crash_counts_once_after_a_new_launch() -> None:
    high = (
        "{name: high, severity: page, immune_steps: 0, for_steps: 3, when: {signal: grad_norm, above: 1}, summary: x}"
    )
    rules = parse_rules(f"[{high}]")
    watched = WatchedRun(watch_config=replace(WATCH_CONFIG, rules=lambda: rules))
    train(watched, range(9), scalars={"grad_norm": 0.0})
    train(watched, range(9, 10), scalars={"grad_norm": 3.0})
    watched.receive(finish(9, outcome="crashed"), at=100.0)
    train(watched, range(10, 11), launch="launch-2", scalars={"grad_norm": 3.0})
    train(watched, range(11, 13), launch="launch-2", scalars={"grad_norm": 0.0})
    assert watched.log.told() == []


def start(launch: str, *, sent_at: float) -> wire.Start:
    return wire.Start(**{**ORIGIN, "launch": launch, "sent_at": sent_at})


def test_the_error_of_a_crash_is_on_the_run_and_in_its_alert() -> None:
    watched = trained()
    told = {"reason": "exception", "error": "RuntimeError: CUDA\nout of memory", "traceback": "in step"}
    watched.receive(finish(24, outcome="crashed", **told), at=250.0)
    ending = watched.log.stored_run.ending
    assert ending is not None
    assert (ending.error, ending.traceback, ending.at) == (told["error"], "in step", 250.0)
    (alert,) = watched.log.alerts.values()
    assert alert.summary.endswith("after step 24: RuntimeError: CUDA out of memory")
    assert watched.log.stored_run.end_phrase == "RuntimeError: CUDA out of memory"
    watched.receive(report(25, launch="launch-2"), at=400.0)
    assert watched.log.stored_run.end_phrase is None


@pytest.mark.parametrize(
    ("end", "phrase"),
    [
        ({"reason": "exited"}, "ended, close() not called"),
        ({"reason": "signal", "signal": "SIGTERM"}, "ended by SIGTERM"),
        ({"reason": "closed"}, "closed"),
        ({}, None),
    ],
)
def test_an_end_without_an_error_finishes_the_run_and_pages_nobody(end: dict[str, str], phrase: str | None) -> None:
    watched = trained()
    watched.receive(finish(24, **end), at=250.0)
    watched.restart()
    watched.tick(10_000.0)
    assert (watched.log.stored_run.state, watched.log.stored_run.end_phrase) == (RunState.FINISHED, phrase)
    assert watched.log.told() == []


def test_a_silent_run_says_that_no_exit_was_seen() -> None:
    watched = trained()
    watched.tick(1000.0)
    assert "no exit was seen" in (watched.log.stored_run.end_phrase or "")
    assert [alert.summary for alert in watched.log.alerts.values()] == [
        "math/grpo: no report for 760 s after step 24 (limit 120 s); no exit was seen"
    ]


def test_a_batch_that_a_crash_cuts_short_is_incomplete_or_unknown_and_never_complete() -> None:
    for announced, known in ((3, False), (None, None)):
        watched = WatchedRun()
        crash = wire.Finish(**ORIGIN, sequence=9, outcome="crashed", sent_at=5000.0)
        watched.receive(report(0, chunks=announced), report(0, chunk=1, chunks=announced), crash, at=1.0)
        (row,) = watched.log.rows.values()
        assert row.known_complete is known


def test_a_batch_that_closed_by_the_clock_is_complete_once_its_rank_says_so() -> None:
    watched = WatchedRun()
    watched.receive(report(0), at=0.0)
    watched.tick(100.0)
    key = next(iter(watched.log.rows))
    assert watched.log.rows[key].known_complete is None
    watched.receive(report(1, finished=finished((0, None, 1))), at=200.0)
    assert watched.log.rows[key].known_complete is True


def test_mistakes_in_the_trainers_calls_are_on_the_run_once() -> None:
    watched = WatchedRun()
    said = wire.Losses(warnings={"step_went_back": "step 3 after step 5"})
    for step in range(3):
        watched.receive(report(step, losses=said), at=10.0 * step)
    more = wire.Losses(warnings={"step_went_back": "step 1 after step 5", "probabilities": "logprobs="})
    watched.receive(finish(2, losses=more), at=40.0)
    warnings = watched.log.stored_run.warnings
    assert [(warning.kind, warning.text, warning.at) for warning in warnings] == [
        ("step_went_back", "step 3 after step 5", 0.0),
        ("probabilities", "logprobs=", 40.0),
    ]


@pytest.mark.parametrize("restarts", [False, True])
def test_a_batch_that_lacked_a_chunk_is_complete_once_it_comes_if_the_count_is_known(restarts: bool) -> None:
    watched = WatchedRun()
    watched.receive(report(0), report(1, finished=finished((0, None, 2))), at=0.0)
    watched.tick(100.0)
    key = BatchKey(1, 0, None)
    assert watched.log.rows[key].known_complete is False
    if restarts:
        watched.restart()
    watched.receive(report(0, chunk=1), at=110.0)
    assert watched.log.rows[key].known_complete is (None if restarts else True)


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
    assert delivered(watched) == ["firing"]


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
    beat(watched, FIRST, at=100.0)
    assert alerts(watched) == [(RULE, "firing", 0), (RULE, "resolved", 0)]
    assert not [alert for alert in watched.view.alerts if alert.rule == RULE]


def test_it_resolves_when_the_heartbeats_of_one_trainer_stop() -> None:
    watched = two_trainers_from(10.0)
    for at in (40.0, 80.0, 110.0, 140.0, 169.0):
        beat(watched, FIRST, *([SECOND] if at <= 80.0 else []), at=at)
    assert alerts(watched) == [(RULE, "firing", 0)]
    beat(watched, FIRST, at=175.0)
    assert alerts(watched) == [(RULE, "firing", 0), (RULE, "resolved", 0)]


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
