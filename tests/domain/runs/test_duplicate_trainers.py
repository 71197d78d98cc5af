"""Duplicate trainers: which two launches are alive on one rank, and for how long."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from trmon.domain.runs.attempts import ActiveLaunch, find_duplicate_trainers


def active_launch(launch: str, began_at: float, beat_at: float | None, **fields: Any) -> ActiveLaunch:
    """Return a launch with an attempt of its own."""
    usual = {"attempt_id": ord(launch), "attempt": f"by {launch}", "rank": 0}
    return ActiveLaunch(launch=launch, began_at=began_at, beat_at=beat_at, **usual | fields)


@dataclass(frozen=True)
class Case:
    """The launches of a run, and for how many seconds two of them are alive; None without a pair."""

    sentence: str
    launches: tuple[ActiveLaunch, ...]
    seconds: float | None


CASES = [
    Case("There are no launches.", (), None),
    Case("There is only one trainer.", (active_launch("A", 0, 100),), None),
    Case(
        "Both have sent heartbeats since the second began.",
        (active_launch("A", 0, 130), active_launch("B", 50, 110)),
        60,
    ),
    Case(
        "The first sends no heartbeats any more: a restart.",
        (active_launch("A", 0, 40), active_launch("B", 50, 110)),
        -10,
    ),
    Case("They began at the same time.", (active_launch("A", 5, 35), active_launch("B", 5, 30)), 25),
    Case(
        "The second one has not sent a heartbeat yet.",
        (active_launch("A", 0, 130), active_launch("B", 50, None)),
        -math.inf,
    ),
    Case("One has ended.", (active_launch("A", 0, 130, ended=True), active_launch("B", 50, 110)), None),
    Case(
        "Another rank of one has ended: this one is about to.",
        (active_launch("A", 0, 130), active_launch("A", 0, 130, rank=1, ended=True), active_launch("B", 50, 110)),
        None,
    ),
    Case("Two ranks, each started by itself.", (active_launch("A", 0, 130), active_launch("B", 50, 130, rank=1)), None),
    Case(
        "One launch in two attempts, as one that went back.",
        (active_launch("A", 0, 130), active_launch("A", 50, 130, attempt_id=2)),
        None,
    ),
    Case(
        "Of three, the two that were heard together for longest count.",
        (active_launch("A", 0, 130), active_launch("B", 50, 70), active_launch("C", 60, 125)),
        65,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence)
def test_how_long_two_have_lived_side_by_side(case: Case) -> None:
    found = find_duplicate_trainers(case.launches)
    assert (None if found is None else found.seconds) == case.seconds


def test_both_are_named_the_older_one_first() -> None:
    found = find_duplicate_trainers([active_launch("B", 50, 130, last_step=7), active_launch("A", 0, 130)])
    assert found is not None
    assert found.names == "attempt by A (launch A, rank 0) and attempt by B (launch B, rank 0) at step 7"
