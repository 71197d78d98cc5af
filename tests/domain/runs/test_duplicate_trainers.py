"""Company: which of two launches live side by side, and since when."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from trmon.domain.runs.duplicate_trainers import ActiveLaunch, find_duplicate_trainers


def speaker(launch: str, began_at: float, beat_at: float | None, **fields: Any) -> ActiveLaunch:
    """Return a launch with an attempt of its own."""
    usual = {"attempt_id": ord(launch), "attempt": f"by {launch}", "rank": 0}
    return ActiveLaunch(launch=launch, began_at=began_at, beat_at=beat_at, **usual | fields)


@dataclass(frozen=True)
class Case:
    """Who speaks, and for how many seconds two of them have done so; None: one lives alone."""

    sentence: str
    speakers: tuple[ActiveLaunch, ...]
    seconds: float | None


CASES = [
    Case("Nobody speaks.", (), None),
    Case("A trainer speaks alone.", (speaker("A", 0, 100),), None),
    Case("Both hearts have beaten since the second began.", (speaker("A", 0, 130), speaker("B", 50, 110)), 60),
    Case("The first has been silent since: a restart.", (speaker("A", 0, 40), speaker("B", 50, 110)), -10),
    Case("They began at once.", (speaker("A", 5, 35), speaker("B", 5, 30)), 25),
    Case("The second one's heart has not beaten yet.", (speaker("A", 0, 130), speaker("B", 50, None)), -math.inf),
    Case("One has ended.", (speaker("A", 0, 130, ended=True), speaker("B", 50, 110)), None),
    Case(
        "Another rank of one has ended: this one is about to.",
        (speaker("A", 0, 130), speaker("A", 0, 130, rank=1, ended=True), speaker("B", 50, 110)),
        None,
    ),
    Case("Two ranks, each started by itself.", (speaker("A", 0, 130), speaker("B", 50, 130, rank=1)), None),
    Case(
        "One launch in two attempts, as one that went back.",
        (speaker("A", 0, 130), speaker("A", 50, 130, attempt_id=2)),
        None,
    ),
    Case(
        "Of three, the two that were heard together for longest count.",
        (speaker("A", 0, 130), speaker("B", 50, 70), speaker("C", 60, 125)),
        65,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_how_long_two_have_lived_side_by_side(case: Case) -> None:
    found = find_duplicate_trainers(case.speakers)
    assert (None if found is None else found.seconds) == case.seconds


def test_both_are_named_the_older_one_first() -> None:
    found = find_duplicate_trainers([speaker("B", 50, 130, last_step=7), speaker("A", 0, 130)])
    assert found is not None
    assert found.names == "attempt by A (launch A, rank 0) and attempt by B (launch B, rank 0) at step 7"
