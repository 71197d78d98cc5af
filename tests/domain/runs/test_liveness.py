"""The life of a run, by its trainer's word and by the clock."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.trainer import report, stored
from trmon.domain.model.messages import StoredNotice
from trmon.domain.runs.liveness import Ending, Life, LifeReason, Patience, after_notice, after_report, after_silence
from trmon.domain.runs.run import RunState
from trmon_client.core import wire

ORIGIN = {"attempt": "a", "launch": "one"}
ENDING = Ending(launch="one", sent_at=100.0)


def life(state: RunState, *, ending: Ending | None = None) -> Life:
    """Return a life in a state, silent since second 50."""
    return Life(state=state, silent_since=50.0, ending=ending)


def notice(message: wire.Start | wire.Pause | wire.Finish | wire.Scalars) -> StoredNotice:
    """Return a notice that came in second 200."""
    return StoredNotice(id=1, run_id=1, attempt_id=1, received_at=200.0, message=message)


def finish(rank: int = 0, outcome: str = "finished") -> wire.Finish:
    """Return the end of a rank."""
    return wire.Finish(**ORIGIN, sequence=1, rank=rank, world_size=4, outcome=outcome, sent_at=190.0, error="boom")


@pytest.mark.parametrize(
    ("before", "launch", "after", "reason"),
    [
        pytest.param(life(RunState.RUNNING), "one", RunState.RUNNING, None, id="a running run runs on"),
        pytest.param(life(RunState.PAUSED), "one", RunState.RUNNING, LifeReason.REPORTED, id="a pause ends"),
        pytest.param(life(RunState.STALLED), "one", RunState.RUNNING, LifeReason.REPORTED, id="a stall ends"),
        pytest.param(life(RunState.CRASHED, ending=ENDING), "one", RunState.CRASHED, None, id="the tail of what ended"),
        pytest.param(
            life(RunState.FINISHED, ending=ENDING), "two", RunState.RUNNING, LifeReason.RESTARTED, id="a new launch"
        ),
    ],
)
def test_a_report_revives_unless_it_is_of_the_launch_that_ended(
    before: Life, launch: str, after: RunState, reason: LifeReason | None
) -> None:
    heard, change = after_report(before, stored(report(0, launch=launch), id_=1, at=300.0))
    assert heard.state is after
    assert (change.reason if change else None) is reason
    assert heard.silent_since == 300.0


@pytest.mark.parametrize(
    ("before", "message", "after"),
    [
        pytest.param(life(RunState.RUNNING), wire.Pause(**ORIGIN, sequence=1), RunState.PAUSED, id="a pause"),
        pytest.param(
            life(RunState.FINISHED, ending=ENDING),
            wire.Pause(**ORIGIN, sequence=1),
            RunState.FINISHED,
            id="a pause after the end says nothing",
        ),
        pytest.param(life(RunState.RUNNING), finish(), RunState.FINISHED, id="rank 0 finishes the run"),
        pytest.param(life(RunState.RUNNING), finish(rank=3), RunState.RUNNING, id="another rank does not"),
        pytest.param(
            life(RunState.STALLED), finish(rank=3, outcome="crashed"), RunState.CRASHED, id="any rank can crash it"
        ),
        pytest.param(
            life(RunState.FINISHED, ending=ENDING),
            finish(rank=3, outcome="crashed"),
            RunState.FINISHED,
            id="a crash on the way out of a finished run is none",
        ),
        pytest.param(
            life(RunState.CRASHED, ending=ENDING),
            wire.Start(**ORIGIN, sent_at=50.0),
            RunState.CRASHED,
            id="a start that was made before the end",
        ),
        pytest.param(
            life(RunState.CRASHED, ending=ENDING),
            wire.Start(**ORIGIN, sent_at=150.0),
            RunState.RUNNING,
            id="a start in the same process after the end",
        ),
        pytest.param(
            life(RunState.STALLED),
            wire.Scalars(**ORIGIN, sequence=1, step=1, values={}),
            RunState.STALLED,
            id="scalars",
        ),
    ],
)
def test_what_a_notice_makes_of_a_run(
    before: Life, message: wire.Start | wire.Pause | wire.Finish | wire.Scalars, after: RunState
) -> None:
    heard, change = after_notice(before, notice(message))
    assert heard.state is after
    assert (change is not None) is (before.state is not after)


def test_a_crash_keeps_its_error() -> None:
    _, change = after_notice(life(RunState.RUNNING), notice(finish(outcome="crashed")))
    assert change is not None
    assert (change.error, change.silence_started_at) == ("boom", 50.0)


def test_a_start_of_a_running_run_begins_the_silence_anew() -> None:
    heard, change = after_notice(life(RunState.RUNNING), notice(wire.Start(**ORIGIN)))
    assert (heard.silent_since, change) == (200.0, None)


@pytest.mark.parametrize(
    ("expected_seconds", "last_seen_at", "watching_since", "now", "stalls"),
    [
        pytest.param(None, None, 0.0, 170.0, False, id="at the floor"),
        pytest.param(None, None, 0.0, 170.5, True, id="beyond the floor"),
        pytest.param(60.0, None, 0.0, 230.0, False, id="three steps of the usual length"),
        pytest.param(60.0, None, 0.0, 231.0, True, id="more than three steps"),
        pytest.param(1.0, 600.0, 0.0, 640.0, False, id="its heart beats"),
        pytest.param(1.0, 600.0, 0.0, 691.0, True, id="its heart has stopped for three beats"),
        pytest.param(1.0, 651.0, 0.0, 651.0, True, id="a heart that beats without a report for too long"),
        pytest.param(100.0, 1040.0, 0.0, 1049.0, False, id="a heart that beats buys ten steps"),
        pytest.param(1.0, 50.0, 0.0, 171.0, True, id="the newest report itself is no heartbeat"),
        pytest.param(None, None, 5000.0, 5100.0, False, id="the service has only begun to watch"),
    ],
)
def test_silence_stalls_a_running_run(
    expected_seconds: float | None, last_seen_at: float | None, watching_since: float, now: float, stalls: bool
) -> None:
    after, change = after_silence(
        life(RunState.RUNNING),
        now=now,
        watching_since=watching_since,
        last_seen=lambda: last_seen_at,
        expected_step_seconds=expected_seconds,
        patience=Patience(),
    )
    assert (after.state is RunState.STALLED) is stalls
    if stalls:
        assert change is not None
        assert (change.reason, change.silence_started_at) == (LifeReason.SILENT, 50.0)
        assert change.silent_seconds > change.limit_seconds


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.STALLED, RunState.CRASHED, RunState.FINISHED])
def test_only_a_running_run_stalls(state: RunState) -> None:
    before = replace(life(state))
    after, change = after_silence(
        before, now=1e6, watching_since=0.0, last_seen=lambda: None, expected_step_seconds=None, patience=Patience()
    )
    assert (after, change) == (before, None)


def test_whose_heart_beats_is_asked_only_once_the_shorter_limit_has_passed() -> None:
    asked: list[float] = []

    def look(now: float) -> None:
        def last_seen() -> float | None:
            asked.append(now)
            return None

        after_silence(
            replace(life(RunState.RUNNING), silent_since=1000.0),
            now=now,
            watching_since=0.0,
            last_seen=last_seen,
            expected_step_seconds=None,
            patience=Patience(),
        )

    for now in (1000.0, 1120.0, 1120.1):
        look(now)
    assert asked == [1120.1]
