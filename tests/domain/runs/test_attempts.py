"""Attempts: restarts and second trainers, told apart by their launch."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from trmon.domain.runs.attempts import Claim, Resolution, fork_name, renewed_claim, resolve_attempt

NOW = 1000.0
LIVE_SECONDS = 90.0


@dataclass(frozen=True)
class Case:
    """A message under a claim, in one sentence, and what becomes of it."""

    sentence: str
    claim: Claim | None
    launch: str
    step: int | None
    expected: Resolution


def claim(
    *, ago: float = 10.0, last_step: int | None = 50, ended: bool = False, former_step: int | None = None
) -> Claim:
    """Return launch A's claim, last seen so many seconds ago; before it, launch Z may have reached a step."""
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
    Case("The first message of a rank takes its claim.", None, "A", 0, Resolution.TAKE_OVER),
    Case("The holder goes on.", claim(), "A", 51, Resolution.CONTINUE),
    Case("The holder may report a step late.", claim(), "A", 3, Resolution.CONTINUE),
    Case("The holder goes on after a long silence.", claim(ago=1e6), "A", 51, Resolution.CONTINUE),
    Case("A second trainer beside a live one is kept apart.", claim(), "B", 51, Resolution.TWO_TRAINERS),
    Case("So is its start.", claim(), "B", None, Resolution.TWO_TRAINERS),
    Case("A restart that goes on in steps takes over.", claim(ago=LIVE_SECONDS), "B", 51, Resolution.TAKE_OVER),
    Case("One that repeats the last step went back.", claim(ago=LIVE_SECONDS), "B", 50, Resolution.WENT_BACK),
    Case("A trainer that said it ended is not live.", claim(ended=True), "B", 51, Resolution.TAKE_OVER),
    Case("Nor one seen by a clock that ran ahead.", claim(ago=-LIVE_SECONDS), "B", 51, Resolution.TAKE_OVER),
    Case("The start of a restart takes over.", claim(ended=True), "B", None, Resolution.TAKE_OVER),
    Case("After which its first step is judged.", claim(last_step=None, former_step=50), "A", 50, Resolution.WENT_BACK),
    Case("And is fine beyond.", claim(last_step=None, former_step=50), "A", 51, Resolution.CONTINUE),
    Case("A former holder's late report stays.", claim(last_step=60, former_step=50), "Z", 50, Resolution.CONTINUE),
    Case("A former holder that trains on is a second one.", claim(former_step=50), "Z", 51, Resolution.TWO_TRAINERS),
    Case(
        "A third launch may not go back behind the first when the second never reported.",
        claim(ago=1e6, last_step=None, former_step=50),
        "B",
        50,
        Resolution.WENT_BACK,
    ),
    Case(
        "A trainer that never reported has no step to go back from.",
        claim(ago=1e6, last_step=None),
        "B",
        0,
        Resolution.TAKE_OVER,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_what_becomes_of_a_message(case: Case) -> None:
    found = resolve_attempt(case.claim, launch=case.launch, step=case.step, now=NOW, live_seconds=LIVE_SECONDS)
    assert found is case.expected
    assert found.forks == (case.expected in (Resolution.TWO_TRAINERS, Resolution.WENT_BACK))


def test_a_claim_remembers_how_far_its_holder_got() -> None:
    first = renewed_claim(None, launch="A", step=5, now=NOW, reports=True)
    late = renewed_claim(first, launch="A", step=3, now=NOW + 1, reports=True)
    assert (late.last_step, late.seen_at, late.reported_at) == (5, NOW + 1, NOW + 1)


def test_a_notice_is_a_sign_of_life_but_no_report() -> None:
    claimed = renewed_claim(None, launch="A", step=None, now=NOW)
    assert (claimed.seen_at, claimed.reported_at, claimed.last_step) == (NOW, None, None)


def test_a_heartbeat_is_kept_apart_from_what_a_spool_may_have_delayed() -> None:
    beaten = renewed_claim(
        renewed_claim(None, launch="A", step=None, now=NOW), launch="A", step=None, now=NOW + 1, beats=True
    )
    later = renewed_claim(beaten, launch="A", step=7, now=NOW + 2, reports=True)
    assert (later.began_at, later.beat_at, later.seen_at) == (NOW, NOW + 1, NOW + 2)
    assert renewed_claim(later, launch="B", step=None, now=NOW + 3).beat_at is None


def test_who_takes_over_inherits_the_step_that_was_reached() -> None:
    taken = renewed_claim(claim(last_step=50), launch="B", step=None, now=NOW)
    assert (taken.launch, taken.former_launch, taken.former_step, taken.last_step) == ("B", "A", 50, None)


def test_a_former_holders_late_report_changes_nothing() -> None:
    before = claim(last_step=60, former_step=50)
    assert renewed_claim(before, launch="Z", step=49, now=NOW, reports=True) is before


def test_an_end_is_remembered() -> None:
    ended = renewed_claim(claim(), launch="A", step=None, now=NOW, ends=True)
    assert ended.ended
    assert renewed_claim(ended, launch="A", step=49, now=NOW, reports=True).ended


def test_forks_are_named_by_the_launch_in_full_only_where_needed() -> None:
    assert fork_name("a", "0123456789") == "a~01234567"
    assert fork_name("a", "0123456789", taken={"a~01234567"}) == "a~0123456789"


def test_a_claim_follows_a_clock_that_is_put_back() -> None:
    assert renewed_claim(claim(ago=-1e6), launch="A", step=51, now=NOW).seen_at == NOW
