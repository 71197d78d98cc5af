"""The state of a run after messages of its trainer and after silence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.domain.trainer import report, stored
from trmon.domain.messages import StoredNotice
from trmon.domain.runs.liveness import (
    Liveness,
    SilenceLimits,
    StateChange,
    StateChangeReason,
    after_notice,
    after_report,
    after_silence,
)
from trmon.domain.runs.run import RunState
from trmon_client.core import wire

ORIGIN = {"attempt": "a", "launch": "one"}
ENDING = wire.Finish(**ORIGIN, sequence=1, sent_at=100.0)


def liveness(state: RunState, *, ending: wire.Finish | None = None) -> Liveness:
    """Return the liveness of a run in a state, silent since second 50."""
    return Liveness(state=state, silent_since=50.0, ending=ending)


def notice(message: wire.Start | wire.Pause | wire.Finish | wire.Scalars) -> StoredNotice:
    """Return a notice received in second 200."""
    return StoredNotice(id=1, run_id=1, attempt_id=1, received_at=200.0, message=message)


def finish(rank: int = 0, outcome: str = "finished") -> wire.Finish:
    return wire.Finish(**ORIGIN, sequence=1, rank=rank, world_size=4, outcome=outcome, sent_at=190.0, error="boom")


RUNNING, PAUSED, STALLED = (liveness(state) for state in (RunState.RUNNING, RunState.PAUSED, RunState.STALLED))
CRASHED, FINISHED = (liveness(state, ending=ENDING) for state in (RunState.CRASHED, RunState.FINISHED))
PAUSE, SCALARS = wire.Pause(**ORIGIN, sequence=1), wire.Scalars(**ORIGIN, sequence=1, step=1, values={})
CRASH_OF_ANOTHER = finish(rank=3, outcome="crashed")


@pytest.mark.parametrize(
    ("before", "launch", "after", "reason"),
    [
        pytest.param(RUNNING, "one", RunState.RUNNING, None, id="a running run runs on"),
        pytest.param(PAUSED, "one", RunState.RUNNING, StateChangeReason.REPORTED, id="a pause ends"),
        pytest.param(STALLED, "one", RunState.RUNNING, StateChangeReason.REPORTED, id="a stall ends"),
        pytest.param(CRASHED, "one", RunState.CRASHED, None, id="a late report of the ended launch"),
        pytest.param(FINISHED, "two", RunState.RUNNING, StateChangeReason.RESTARTED, id="a new launch"),
    ],
)
def test_a_report_restarts_a_run_unless_its_launch_has_ended(
    before: Liveness, launch: str, after: RunState, reason: StateChangeReason | None
) -> None:
    after_message, change = after_report(before, stored(report(0, launch=launch), id_=1, at=300.0))
    assert after_message.state is after
    assert (change.reason if change else None) is reason
    assert after_message.silent_since == 300.0


@pytest.mark.parametrize(
    ("before", "message", "after"),
    [
        pytest.param(RUNNING, PAUSE, RunState.PAUSED, id="a pause"),
        pytest.param(FINISHED, PAUSE, RunState.FINISHED, id="a pause after the end has no effect"),
        pytest.param(RUNNING, finish(), RunState.FINISHED, id="rank 0 finishes the run"),
        pytest.param(RUNNING, finish(rank=3), RunState.RUNNING, id="another rank does not"),
        pytest.param(STALLED, CRASH_OF_ANOTHER, RunState.CRASHED, id="any rank can crash it"),
        pytest.param(FINISHED, CRASH_OF_ANOTHER, RunState.FINISHED, id="a crash after a normal end has no effect"),
        pytest.param(CRASHED, wire.Start(**ORIGIN, sent_at=50.0), RunState.CRASHED, id="a start before the end"),
        pytest.param(CRASHED, wire.Start(**ORIGIN, sent_at=150.0), RunState.RUNNING, id="a start after the end"),
        pytest.param(STALLED, SCALARS, RunState.STALLED, id="scalars"),
    ],
)
def test_notices_change_the_state(
    before: Liveness, message: wire.Start | wire.Pause | wire.Finish | wire.Scalars, after: RunState
) -> None:
    after_message, change = after_notice(before, notice(message))
    assert after_message.state is after
    assert (change is not None) is (before.state is not after)


def test_a_crash_keeps_its_error() -> None:
    _, change = after_notice(RUNNING, notice(finish(outcome="crashed")))
    assert (change.ending.error, change.silence_started_at) == ("boom", 50.0)


def test_a_failure_explains_the_signal_that_ended_its_launch() -> None:
    terminated = wire.Finish(**ORIGIN, sequence=1, reason="signal", signal="SIGTERM", sent_at=190.0)
    ended, change = after_notice(RUNNING, notice(terminated))
    assert (ended.state, change.ending and change.ending.phrase) == (RunState.FINISHED, "ended by SIGTERM")
    other = wire.Finish(attempt="a", launch="two", sequence=2, outcome="crashed", error="boom")
    assert after_notice(ended, notice(other))[1] is None
    crashed, change = after_notice(ended, notice(CRASH_OF_ANOTHER))
    assert (crashed.state, change.ending and change.ending.phrase) == (RunState.CRASHED, "boom on rank 3")
    assert after_notice(crashed, notice(terminated))[1] is None


def test_a_start_of_a_running_run_restarts_the_silence() -> None:
    after_message, change = after_notice(RUNNING, notice(wire.Start(**ORIGIN)))
    assert (after_message.silent_since, change) == (200.0, None)


def silent(before: Liveness = RUNNING, **given: Any) -> tuple[Liveness, StateChange | None]:
    """Return what silence makes of a run; by default no heartbeat was seen and no step's length is known."""
    usual = {"watching_since": 0.0, "last_seen": lambda: None, "expected_step_seconds": None}
    return after_silence(before, limits=SilenceLimits(), **usual | given)


@pytest.mark.parametrize(
    ("expected_seconds", "last_seen_at", "watching_since", "now", "stalls"),
    [
        pytest.param(None, None, 0.0, 170.0, False, id="at the floor"),
        pytest.param(None, None, 0.0, 170.5, True, id="beyond the floor"),
        pytest.param(60.0, None, 0.0, 230.0, False, id="three steps of the usual length"),
        pytest.param(60.0, None, 0.0, 231.0, True, id="more than three steps"),
        pytest.param(1.0, 600.0, 0.0, 640.0, False, id="with heartbeats"),
        pytest.param(1.0, 600.0, 0.0, 691.0, True, id="three heartbeats missed"),
        pytest.param(1.0, 651.0, 0.0, 651.0, True, id="heartbeats without a report for too long"),
        pytest.param(100.0, 1040.0, 0.0, 1049.0, False, id="with heartbeats the limit is ten steps"),
        pytest.param(1.0, 50.0, 0.0, 171.0, True, id="the newest report itself is no heartbeat"),
        pytest.param(None, None, 5000.0, 5100.0, False, id="the service started recently"),
    ],
)
def test_silence_stalls_a_running_run(
    expected_seconds: float | None, last_seen_at: float | None, watching_since: float, now: float, stalls: bool
) -> None:
    after, change = silent(
        now=now, watching_since=watching_since, last_seen=lambda: last_seen_at, expected_step_seconds=expected_seconds
    )
    assert (after.state is RunState.STALLED) is stalls
    if stalls:
        assert (change.reason, change.silence_started_at) == (StateChangeReason.SILENT, 50.0)
        assert change.silent_seconds > change.limit_seconds


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.STALLED, RunState.CRASHED, RunState.FINISHED])
def test_only_a_running_run_stalls(state: RunState) -> None:
    assert silent(liveness(state), now=1e6) == (liveness(state), None)


def test_the_last_message_is_read_only_after_the_shorter_limit() -> None:
    calls: list[float] = []

    for now in (1000.0, 1120.0, 1120.1):
        silent(replace(RUNNING, silent_since=1000.0), now=now, last_seen=lambda now=now: calls.append(now))
    assert calls == [1120.1]
