"""Deliveries: their keys, groups, merged stalls and owners, and the notifications that they carry."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec import structs

from tests.domain.alerts.alert_builders import ALERT, delivery_of, notification_of
from tests.domain.memory_log import MemoryLog
from trmon.domain.alerts.alert import Alert, AlertState, TransitionReason
from trmon.domain.alerts.delivery import (
    MAX_WAIT_SECONDS,
    Delivery,
    DeliveryState,
    MergedStalls,
    OwnerChange,
    RetryPolicy,
    Routes,
    StallMerging,
    Subject,
    closing_delivery,
    group_deliveries,
    merge_stalls,
    repeat_interval_seconds,
)
from trmon.domain.alerts.notification import Flapping, Notification
from trmon.domain.severity import Severity, json_number


def test_a_retry_repeats_the_key_and_a_reminder_has_a_new_one() -> None:
    first = delivery_of(dedup_key="x")
    assert [first.key, replace(first, attempts=1).key, replace(first, rounds=2).key] == ["x", "x", "x:2"]


def test_the_subject_is_the_episode_or_without_one_the_delivery() -> None:
    assert delivery_of().subject == ("hook", ALERT.episode)
    assert delivery_of(id=9, episode=None).subject == ("hook", 9)


def due(key: str, *, receiver: str = "hook", run_id: int | None = 1) -> Delivery:
    """Return a due delivery; the first letter of its key names the episode."""
    return delivery_of(receiver=receiver, dedup_key=key, run_id=run_id, episode=key[0])


def keys(*deliveries: Delivery, in_flight: tuple[Subject, ...] = ()) -> list[str]:
    groups = group_deliveries(deliveries, in_flight=in_flight, grouping_receivers=("hook", "slack"))
    return [" ".join(delivery.dedup_key for delivery in group) for group in groups]


@pytest.mark.parametrize(
    ("deliveries", "groups"),
    [
        pytest.param([due("a"), due("b"), due("c", run_id=2)], ["a b", "c"], id="one group per run"),
        pytest.param([due("a"), due("a", receiver="slack"), due("d")], ["a d", "a"], id="and receiver"),
        pytest.param([due(key, receiver="pager") for key in "ab"], ["a", "b"], id="a receiver of single alerts"),
        pytest.param([due(key, run_id=None) for key in "ab"], ["a", "b"], id="without a run none are grouped"),
        pytest.param([due("a1"), due("b1"), due("a2")], ["a1 b1"], id="one delivery of an alert at a time"),
    ],
)
def test_deliveries_that_are_due_together_are_grouped(deliveries: list[Delivery], groups: list[str]) -> None:
    assert keys(*deliveries) == groups


def test_an_alert_that_is_being_sent_waits() -> None:
    assert keys(due("a1"), due("b1"), due("a2"), in_flight=(("hook", "a"),)) == ["b1"]


DELIVERY = delivery_of()
WARNING = replace(ALERT, severity=Severity.WARN)


@pytest.mark.parametrize(
    ("delivery", "alert", "receiver_repeat_seconds", "expected"),
    [
        pytest.param(DELIVERY, ALERT, None, 60.0, id="a page is repeated"),
        pytest.param(DELIVERY, WARNING, None, None, id="a warning is not"),
        pytest.param(DELIVERY, WARNING, 5.0, 5.0, id="a receiver that drops alerts gets a warning again"),
        pytest.param(
            replace(DELIVERY, told_state=AlertState.RESOLVED), ALERT, 5.0, None, id="a resolve notification is not"
        ),
        pytest.param(DELIVERY, replace(ALERT, state=AlertState.RESOLVED), 5.0, None, id="a resolved alert is not"),
        pytest.param(DELIVERY, None, 5.0, None, id="an alert that ended long ago is not"),
    ],
)
def test_only_firing_alerts_are_repeated(
    delivery: Delivery, alert: Alert | None, receiver_repeat_seconds: float | None, expected: float | None
) -> None:
    interval = repeat_interval_seconds(
        delivery, alert, remind_seconds=60.0, receiver_repeat_seconds=receiver_repeat_seconds
    )
    assert interval == expected


@pytest.mark.parametrize(("attempts", "seconds"), [(1, 2.0), (2, 4.0), (5, 32.0), (12, 600.0), (10_000, 600.0)])
def test_waits_double_up_to_ten_minutes(attempts: int, seconds: float) -> None:
    assert RetryPolicy(max_attempts=3, backoff_seconds=2.0).wait_seconds(attempts) == seconds


ROUTES = Routes(receivers=("webhook", "slack"), by_owner={"ana": ("slack",), "bo": ()})


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        pytest.param("ana", ("slack",), id="an owner with a route"),
        pytest.param("bo", (), id="an owner with an empty route"),
        pytest.param("cy", ("webhook", "slack"), id="an owner without a route"),
        pytest.param(None, ("webhook", "slack"), id="no owner"),
    ],
)
def test_receivers_follow_the_owners_route(owner: str | None, expected: tuple[str, ...]) -> None:
    assert ROUTES.of(owner) == expected


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


OWNERS = Routes(receivers=("hook", "slack", "pager"), by_owner={"ana": ("slack",), "bo": ("slack", "pager"), "cy": ()})
OWNER_CHANGE = OwnerChange(routes=OWNERS, public_url=None, now=500.0)
RUN = MemoryLog().stored_run


@pytest.mark.parametrize(
    ("before", "after", "receivers"),
    [
        ("ana", "bo", ["pager"]),
        ("bo", "ana", []),
        ("ana", "ana", []),
        ("cy", "bo", ["slack", "pager"]),
        ("bo", "cy", []),
        (None, "bo", []),
        ("bo", "dan", ["hook"]),
    ],
)
def test_only_receivers_that_the_former_owner_did_not_have_are_notified(
    before: str | None, after: str, receivers: list[str]
) -> None:
    deliveries = OWNER_CHANGE.deliveries([ALERT], before=replace(RUN, owner=before), after=replace(RUN, owner=after))
    assert [delivery.receiver for delivery in deliveries] == receivers
    assert {delivery.notification.run.owner for delivery in deliveries} <= {after}
    assert {(delivery.episode, delivery.told_state) for delivery in deliveries} <= {(ALERT.episode, AlertState.FIRING)}


def test_pending_alerts_and_severity_info_are_not_delivered() -> None:
    quiet = [replace(ALERT, state=AlertState.PENDING), replace(ALERT, severity=Severity.INFO)]
    assert OWNER_CHANGE.deliveries(quiet, before=replace(RUN, owner="ana"), after=replace(RUN, owner="bo")) == ()


def test_it_resolves_the_alert_under_the_name_of_the_run_that_the_receiver_knows() -> None:
    fired = delivery_of()
    closing = closing_delivery(fired, reason=TransitionReason.DELETED, now=99.0)
    assert closing.dedup_key == f"hook:{ALERT.episode}:deleted:grpo:resolved"
    assert (closing.run_id, closing.episode, closing.told_state) == (None, ALERT.episode, AlertState.RESOLVED)
    told = closing.notification
    assert (told.status, told.reason, told.url) == (AlertState.RESOLVED, "the run was deleted", None)
    assert (told.alert.at, told.alert.since_at, told.run) == (99.0, ALERT.since_at, fired.notification.run)


def test_the_stored_form_has_the_content_of_the_transition() -> None:
    stored = json.loads(msgspec.json.encode(notification_of(public_url="https://trmon.example/")))
    assert stored == {
        "status": "firing",
        "reason": TransitionReason.FIRED.value,
        "alert": {
            "identity": "1/high",
            "rule": "high",
            "severity": "page",
            "labels": {"team": "rl"},
            "since_at": 10.0,
            "at": 20.0,
            "since_step": 7,
        },
        "run": {"project": "math", "run": "grpo", "owner": None, "tags": [], "mode": "observe", "attempt_id": 3},
        "value": "inf",
        "threshold": 1.0,
        "summary": "x is inf",
        "step": 7,
        "update": None,
        "runbook": "look",
        "url": "https://trmon.example/runs/math/grpo?step=7",
    }


def test_a_stored_notification_is_read_back_unchanged() -> None:
    notification = structs.replace(
        notification_of(), flapping=Flapping(transitions=6, within_steps=100), told_before=2, key="hook:x"
    )
    assert msgspec.json.decode(msgspec.json.encode(notification), type=Notification) == notification


def test_fields_of_a_later_version_are_ignored() -> None:
    document = msgspec.to_builtins(notification_of()) | {"since_version": 3}
    assert msgspec.convert(document, Notification) == notification_of()


def test_nan_is_null_and_infinities_have_names() -> None:
    assert [json_number(x) for x in (1.5, math.nan, math.inf, -math.inf)] == [1.5, None, "inf", "-inf"]
