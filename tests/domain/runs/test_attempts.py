"""Attempts: the launch id tells restarts from second trainers."""

from __future__ import annotations

import math
from typing import Any

import pytest

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
from trmon_client.core import wire

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
    ("The holder may report an earlier step late.", claim(), "A", 3, Resolution.CONTINUE),
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
    ("A late report of a former holder stays.", claim(last_step=60, former_step=50), "Z", 50, Resolution.CONTINUE),
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


def report(step: int, launch: str = "A") -> wire.Report:
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
    late = renewed(report(5), report(3))
    assert (late.last_step, late.seen_at, late.reported_at) == (5, NOW + 1, NOW + 1)


def test_a_notice_updates_the_time_seen_but_not_the_time_reported() -> None:
    claimed = renewed(start())
    assert (claimed.seen_at, claimed.reported_at, claimed.last_step) == (NOW, None, None)


def test_scalars_show_progress_until_the_rank_has_sent_a_report() -> None:
    found = renewed(scalars(7))
    assert (found.last_step, found.scalars_at, found.reported_at) == (7, NOW, None)
    assert renewed(report(5), scalars(7)).last_step == 5


def test_the_time_of_a_heartbeat_is_kept_apart_from_other_messages() -> None:
    later = renewed(start(), wire.Heartbeat(attempt="a", launch="A"), report(7))
    assert (later.began_at, later.beat_at, later.seen_at) == (NOW, NOW + 1, NOW + 2)
    assert renewed(start("B"), held=later).beat_at is None


def test_a_take_over_keeps_the_step_of_the_former_launch() -> None:
    found = renewed(start("B"), held=claim(last_step=50))
    assert (found.launch, found.former_launch, found.former_step, found.last_step) == ("B", "A", 50, None)


def test_a_late_report_of_a_former_launch_does_not_change_the_claim() -> None:
    before = claim(last_step=60, former_step=50)
    assert renewed(report(49, "Z"), held=before) is before


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
    assert renewed(end, report(49), held=claim()).ended


def test_fork_names_use_the_whole_launch_id_only_if_needed() -> None:
    assert fork_name("a", "0123456789") == "a~01234567"
    assert fork_name("a", "0123456789", taken={"a~01234567"}) == "a~0123456789"


def test_a_claim_follows_a_clock_that_is_set_back() -> None:
    assert renewed(report(51), held=claim(ago=-1e6)).seen_at == NOW


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
