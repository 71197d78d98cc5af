"""Which stalls wait for others, and which become one message."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.domain.alerts.alert_builders import ALERT, delivery_of
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.delivery import (
    MAX_WAIT_SECONDS,
    Delivery,
    DeliveryState,
    MergedStalls,
    StallMerging,
    merge_stalls,
)

QUIET_SECONDS = 30.0
NOW = 1000.0


def stall(
    run_id: int, *, age_seconds: float = QUIET_SECONDS, rule: str = "stalled", gone: bool = False, **fields: Any
) -> Delivery:
    """Return a delivery that a run stalled so many seconds ago."""
    alert = replace(ALERT, identity=f"{run_id}/{rule}", rule=rule, run_id=run_id)
    usual = {"id": run_id, "run_id": None if gone else run_id, "made_at": NOW - age_seconds}
    return delivery_of(alert, **usual | fields)


def merged(*deliveries: Delivery, in_flight: tuple[tuple[str, str | int], ...] = ()) -> MergedStalls:
    merging = StallMerging(receivers=("hook", "slack"), quiet_seconds=QUIET_SECONDS)
    return merge_stalls(deliveries, in_flight=in_flight, merging=merging, now=NOW)


def runs(stalls: MergedStalls) -> tuple[list[list[int | None]], list[int | None]]:
    """Return the runs of each group, and those that wait."""
    groups = [[delivery.run_id for delivery in group] for group in stalls.groups]
    return groups, [delivery.run_id for delivery in stalls.waiting]


@pytest.mark.parametrize(
    ("ages", "groups", "waiting"),
    [
        pytest.param((1.0,), [], [0], id="a stall waits for others"),
        pytest.param((30.0,), [], [], id="one that met no other is sent as any alert"),
        pytest.param((40.0, 35.0), [], [], id="so are two"),
        pytest.param((50.0, 40.0, 30.0), [[0, 1, 2]], [], id="three become one message when no further one comes"),
        pytest.param((50.0, 40.0, 5.0), [], [0, 1, 2], id="a new one lets the others wait"),
        pytest.param((MAX_WAIT_SECONDS, 40.0, 0.0), [[0, 1, 2]], [], id="but none waits for longer than the limit"),
    ],
)
def test_stalls_of_several_runs_are_merged_once_it_is_quiet(
    ages: tuple[float, ...], groups: list[list[int]], waiting: list[int]
) -> None:
    stalls = merged(*(stall(i, age_seconds=age) for i, age in enumerate(ages)))
    assert runs(stalls) == (groups, waiting)
    assert len(stalls.subjects) == sum(map(len, groups)) + len(waiting)


def test_each_receiver_gets_its_own_message_and_firing_is_not_mixed_with_resolved() -> None:
    slack = [stall(i, receiver="slack") for i in range(3)]
    resolved = [stall(i, told_state=AlertState.RESOLVED) for i in range(3, 6)]
    hook = [stall(i) for i in range(6, 9)]
    assert runs(merged(*slack, *resolved, *hook)) == ([[0, 1, 2], [3, 4, 5], [6, 7, 8]], [])


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"rule": "crashed"}, id="another rule"),
        pytest.param({"receiver": "pager"}, id="a receiver where each alert has its own identity"),
        pytest.param({"gone": True}, id="of a run that was deleted"),
    ],
)
def test_other_deliveries_are_left_alone(other: dict[str, Any]) -> None:
    assert merged(*(stall(i, age_seconds=1.0, **other) for i in range(3))) == MergedStalls()


def test_three_stalls_of_fewer_runs_are_not_merged() -> None:
    twice = [stall(1), replace(stall(1), episode="later"), stall(2)]
    assert merged(*twice) == MergedStalls()


@pytest.mark.parametrize("seen", [{"attempts": 1}, {"rounds": 1}, {"state": DeliveryState.HELD}])
def test_retries_reminders_and_held_ones_are_merged_without_a_wait(seen: dict[str, Any]) -> None:
    old = [stall(i, age_seconds=0.0, **seen) for i in range(3)]
    assert runs(merged(*old, stall(3, age_seconds=1.0))) == ([[0, 1, 2]], [3])


def test_the_end_of_a_stall_waits_behind_its_start() -> None:
    firing, resolved = stall(1, age_seconds=1.0), stall(1, age_seconds=0.5, told_state=AlertState.RESOLVED)
    stalls = merged(firing, resolved)
    assert stalls.waiting == (firing,)
    assert resolved.subject in stalls.subjects
    assert merged(resolved, in_flight=(firing.subject,)) == MergedStalls()
