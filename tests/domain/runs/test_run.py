"""Notes and checkpoints of a run, its state after messages and silence, and its attempts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.domain.memory_log import MemoryLog
from tests.domain.trainer import report, stored
from trmon.domain.errors import InvalidInput
from trmon.domain.messages import StoredNotice
from trmon.domain.runs.attempts import (
    ActiveLaunch,
    Claim,
    Resolution,
    find_duplicate_trainers,
    fork_name,
    renewed_claim,
    resolve_attempt,
    was_reached_before_fork,
)
from trmon.domain.runs.liveness import (
    Liveness,
    SilenceLimits,
    StateChange,
    StateChangeReason,
    after_notice,
    after_report,
    after_silence,
)
from trmon.domain.runs.run import (
    MAX_AUTHOR_LENGTH,
    MAX_CHECKPOINTS,
    MAX_NOTE_LENGTH,
    MAX_PATH_LENGTH,
    MAX_WARNINGS,
    NEWEST_CHECKPOINTS,
    RunState,
    RunWarning,
    SavedCheckpoint,
    checked_author,
    checked_note_text,
    with_checkpoint,
    with_new_warnings,
    without_checkpoints_after,
)
from trmon_client.core import wire

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize("text", ["lr raised", "two\nlines", "größer 学习率", FAMILY, "x" * MAX_NOTE_LENGTH])
def test_text_is_kept_in_any_language(text: str) -> None:
    assert checked_note_text(f" {text}\n") == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1 to 2000 characters, not 0"),
        (" \n ", "not 0"),
        ("x" * (MAX_NOTE_LENGTH + 1), "not 2001"),
        ("a\x1b[2Jb", r"U\+001B"),
        ("a\rb", r"U\+000D"),
        ("a\u202eb", r"U\+202E"),
        ("a\u2066b", r"U\+2066"),
        ("a\u2028b", r"U\+2028"),
        ("a\ud800b", r"U\+D800"),
    ],
)
def test_other_text_is_refused_with_its_character(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        checked_note_text(text)


def test_an_author_is_one_line() -> None:
    assert checked_author(" ana ") == "ana"
    for name in ("", "a\nb", "x" * (MAX_AUTHOR_LENGTH + 1)):
        with pytest.raises(InvalidInput, match="author"):
            checked_author(name)


def saved_of(*saved: wire.SavedCheckpoint, known: tuple[RunWarning, ...] = ()) -> tuple[RunWarning, ...]:
    for at, one in enumerate(saved):
        known = with_checkpoint(known, one, at=float(at))
    return known


def checkpoints_of(warnings: tuple[RunWarning, ...]) -> list[tuple[int, str]]:
    run = replace(MemoryLog().stored_run, warnings=warnings)
    return [(one.step, one.path) for one in run.checkpoints]


def test_checkpoints_are_in_the_order_of_steps_without_those_that_are_deleted_or_saved_over() -> None:
    known = saved_of(
        *(wire.SavedCheckpoint(step, f"/c/{step}") for step in (30, 10, 20)),
        wire.SavedCheckpoint(40, "/c/40", deleted=[10, 99]),
        wire.SavedCheckpoint(50, "/c/20"),
        wire.SavedCheckpoint(30, "/again/30"),
    )
    assert checkpoints_of(known) == [(30, "/again/30"), (40, "/c/40"), (50, "/c/20")]
    assert checkpoints_of(without_checkpoints_after(known, 40)) == [(30, "/again/30"), (40, "/c/40")]


def test_of_many_checkpoints_the_newest_are_all_kept_and_the_others_thinned_out() -> None:
    known = saved_of(*(wire.SavedCheckpoint(step, f"/c/{step}") for step in range(0, 1000, 5)))
    steps = [step for step, _ in checkpoints_of(known)]
    assert steps[-NEWEST_CHECKPOINTS:] == [*range(1000 - 5 * NEWEST_CHECKPOINTS, 1000, 5)]
    assert len(steps) <= MAX_CHECKPOINTS
    assert steps[0] == 0


def test_checkpoints_are_no_mistakes_and_take_no_place_of_one() -> None:
    known = saved_of(*(wire.SavedCheckpoint(step, f"/c/{step}") for step in range(MAX_WARNINGS)))
    reported = {"step_went_back": "it did", "checkpoint 3": "/forged"}
    known = with_new_warnings(known, reported, at=9.0)
    run = replace(MemoryLog().stored_run, warnings=known)
    assert [one.kind for one in run.mistakes] == ["step_went_back"]
    assert run.checkpoints[3] == SavedCheckpoint(3, "/c/3", at=3.0)


def test_a_path_is_one_printable_line_of_bounded_length() -> None:
    known = saved_of(wire.SavedCheckpoint(1, "/a\n\u202eb"), wire.SavedCheckpoint(2, "/" + "x" * 5000))
    (_, first), (_, second) = checkpoints_of(known)
    assert first == "/a\ufffd\ufffdb"
    assert len(second) == MAX_PATH_LENGTH


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


NOW = 1000.0
LIVE_SECONDS = 90.0


def claim(
    *, ago: float = 10.0, last_step: int | None = 50, ended: bool = False, former_step: int | None = None
) -> Claim:
    """Return the claim of launch A, seen some seconds ago; launch Z may have reached a step before."""
    former = None if former_step is None else "Z"
    return Claim(
        launch="A",
        seen_at=NOW - ago,
        last_step=last_step,
        ended=ended,
        former_launch=former,
        former_step=former_step,
    )


CASES = [
    ("The first message of a rank takes its claim.", None, "A", 0, Resolution.TAKE_OVER),
    ("The holder continues.", claim(), "A", 51, Resolution.CONTINUE),
    ("The holder may report_of an earlier step late.", claim(), "A", 3, Resolution.CONTINUE),
    ("The holder continues after a long silence.", claim(ago=1e6), "A", 51, Resolution.CONTINUE),
    ("A second trainer beside a live one gets its own attempt.", claim(), "B", 51, Resolution.TWO_TRAINERS),
    ("So does its start.", claim(), "B", None, Resolution.TWO_TRAINERS),
    ("A restart with a later step takes over.", claim(ago=LIVE_SECONDS), "B", 51, Resolution.TAKE_OVER),
    ("A restart that repeats the last step went back.", claim(ago=LIVE_SECONDS), "B", 50, Resolution.WENT_BACK),
    ("A trainer that sent its end is not live.", claim(ended=True), "B", 51, Resolution.TAKE_OVER),
    ("Neither is one that was seen far in the future.", claim(ago=-LIVE_SECONDS), "B", 51, Resolution.TAKE_OVER),
    ("The start of a restart takes over.", claim(ended=True), "B", None, Resolution.TAKE_OVER),
    ("Its first step is then checked.", claim(last_step=None, former_step=50), "A", 50, Resolution.WENT_BACK),
    ("A later step is accepted.", claim(last_step=None, former_step=50), "A", 51, Resolution.CONTINUE),
    ("A late report_of of a former holder stays.", claim(last_step=60, former_step=50), "Z", 50, Resolution.CONTINUE),
    ("A former holder that trains on is a second trainer.", claim(former_step=50), "Z", 51, Resolution.TWO_TRAINERS),
    (
        "A third launch may not go back behind the first when the second never reported.",
        claim(ago=1e6, last_step=None, former_step=50),
        *("B", 50, Resolution.WENT_BACK),
    ),
    ("Who never reported has nothing to go back from.", claim(ago=1e6, last_step=None), "B", 0, Resolution.TAKE_OVER),
]


@pytest.mark.parametrize(("sentence", "held", "launch", "step", "expected"), CASES, ids=[case[0] for case in CASES])
def test_messages_are_resolved(
    sentence: str, held: Claim | None, launch: str, step: int | None, expected: Resolution
) -> None:
    found = resolve_attempt(held, launch=launch, step=step, now=NOW, live_seconds=LIVE_SECONDS)
    assert found is expected
    assert found.forks == (expected in (Resolution.TWO_TRAINERS, Resolution.WENT_BACK))


def report_of(step: int, launch: str = "A") -> wire.Report:
    return wire.Report(attempt="a", launch=launch, step=step)


def start(launch: str = "A") -> wire.Start:
    return wire.Start(attempt="a", launch=launch)


def scalars(step: int) -> wire.Scalars:
    return wire.Scalars(attempt="a", launch="A", sequence=1, step=step, values={})


def renewed(*messages: wire.Message, held: Claim | None = None) -> Claim:
    """Return the claim after messages, the first of which comes now and each of the others a second later."""
    for at, message in enumerate(messages):
        held = renewed_claim(held, message, now=NOW + at)
    return held


def test_a_claim_keeps_the_largest_step_of_its_launch() -> None:
    late = renewed(report_of(5), report_of(3))
    assert (late.last_step, late.seen_at, late.reported_at) == (5, NOW + 1, NOW + 1)


def test_a_notice_updates_the_time_seen_but_not_the_time_reported() -> None:
    claimed = renewed(start())
    assert (claimed.seen_at, claimed.reported_at, claimed.last_step) == (NOW, None, None)


def test_scalars_show_progress_until_the_rank_has_sent_a_report() -> None:
    found = renewed(scalars(7))
    assert (found.last_step, found.scalars_at, found.reported_at) == (7, NOW, None)
    assert renewed(report_of(5), scalars(7)).last_step == 5


def test_the_time_of_a_heartbeat_is_kept_apart_from_other_messages() -> None:
    later = renewed(start(), wire.Heartbeat(attempt="a", launch="A"), report_of(7))
    assert (later.began_at, later.beat_at, later.seen_at) == (NOW, NOW + 1, NOW + 2)
    assert renewed(start("B"), held=later).beat_at is None


def test_a_take_over_keeps_the_step_of_the_former_launch() -> None:
    found = renewed(start("B"), held=claim(last_step=50))
    assert (found.launch, found.former_launch, found.former_step, found.last_step) == ("B", "A", 50, None)


def test_a_late_report_of_a_former_launch_does_not_change_the_claim() -> None:
    before = claim(last_step=60, former_step=50)
    assert renewed(report_of(49, "Z"), held=before) is before


@pytest.mark.parametrize(
    ("launch", "step", "belongs"),
    [
        *(("now", 6, True), ("now", 7, True), ("now", 8, False), ("now", 5, False), ("now", None, False)),
        *(("before", 5, True), ("before", 6, False), ("other", 6, False)),
    ],
)
def test_what_a_launch_had_reached_before_its_fork_stays(launch: str, step: int | None, belongs: bool) -> None:
    claim = Claim(launch="now", seen_at=0.0, last_step=7, former_launch="before", former_step=5)
    assert was_reached_before_fork(claim, launch=launch, step=step) is belongs
    assert not was_reached_before_fork(None, launch=launch, step=step)


def test_an_end_is_kept() -> None:
    end = wire.Finish(attempt="a", launch="A", sequence=1)
    assert renewed(end, held=claim()).ended
    assert renewed(end, report_of(49), held=claim()).ended


def test_fork_names_use_the_whole_launch_id_only_if_needed() -> None:
    assert fork_name("a", "0123456789") == "a~01234567"
    assert fork_name("a", "0123456789", taken={"a~01234567"}) == "a~0123456789"


def test_a_claim_follows_a_clock_that_is_set_back() -> None:
    assert renewed(report_of(51), held=claim(ago=-1e6)).seen_at == NOW


def active_launch(launch: str, began_at: float, beat_at: float | None, **fields: Any) -> ActiveLaunch:
    """Return a launch with an attempt of its own."""
    usual = {"attempt_id": ord(launch), "attempt": f"by {launch}", "rank": 0}
    return ActiveLaunch(launch=launch, began_at=began_at, beat_at=beat_at, **usual | fields)


FIRST = active_launch("A", 0, 130)
PAIR_CASES: list[tuple[str, list[ActiveLaunch], float | None]] = [
    ("There are no launches.", [], None),
    ("There is only one trainer.", [FIRST], None),
    ("Both have sent heartbeats since the second began.", [FIRST, active_launch("B", 50, 110)], 60),
    ("The first sends none any more: a restart.", [active_launch("A", 0, 40), active_launch("B", 50, 110)], -10),
    ("They began at the same time.", [active_launch("A", 5, 35), active_launch("B", 5, 30)], 25),
    ("The second one has not sent a heartbeat yet.", [FIRST, active_launch("B", 50, None)], -math.inf),
    ("One has ended.", [active_launch("A", 0, 130, ended=True), active_launch("B", 50, 110)], None),
    (
        "Another rank of one has ended: this one is about to.",
        [FIRST, active_launch("A", 0, 130, rank=1, ended=True), active_launch("B", 50, 110)],
        None,
    ),
    ("Two ranks, each started by itself.", [FIRST, active_launch("B", 50, 130, rank=1)], None),
    ("One launch in two attempts, as one that went back.", [FIRST, active_launch("A", 50, 130, attempt_id=2)], None),
    (
        "Of three, the two that were heard together for longest count.",
        [FIRST, active_launch("B", 50, 70), active_launch("C", 60, 125)],
        65,
    ),
]


@pytest.mark.parametrize(("sentence", "launches", "seconds"), PAIR_CASES, ids=[case[0] for case in PAIR_CASES])
def test_how_long_two_have_lived_side_by_side(
    sentence: str, launches: list[ActiveLaunch], seconds: float | None
) -> None:
    found = find_duplicate_trainers(launches)
    assert (None if found is None else found.seconds) == seconds


def test_both_are_named_the_older_one_first() -> None:
    found = find_duplicate_trainers([active_launch("B", 50, 130, last_step=7), active_launch("A", 0, 130)])
    assert found.names == "attempt by A (launch A, rank 0) and attempt by B (launch B, rank 0) at step 7"
