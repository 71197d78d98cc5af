"""Tests the outbox: deliveries are attempted until they succeed or are given up."""

from __future__ import annotations

import pytest

from tests.store.builders import CODE, NOW, alert, begin, commit, delivery, delivery_states, paged
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.delivery import Delivery, DeliveryState, RetryPolicy
from trmon.domain.alerts.muting import (
    DeliveryUpdate,
    MuteReason,
    update_after_failure,
    update_after_mute,
    update_after_success,
)
from trmon.domain.errors import NotFound
from trmon.domain.identity import RunKey
from trmon.store import Store


@pytest.fixture
def outbox(store: Store) -> Store:
    """A store whose outbox holds "late", due now, and "soon", due in a minute."""
    [run_id] = begin(store, "math/grpo")
    commit(store, run_id, deliveries=(delivery("soon", due_at=NOW + 60), delivery("late")))
    return store


def fails(delivery: Delivery, *, may_succeed: bool = True) -> DeliveryUpdate:
    """Return the update after a failed attempt; the next one is due in ten seconds if it may succeed."""
    retry = RetryPolicy(max_attempts=3, backoff_seconds=10.0)
    return update_after_failure(delivery, now=NOW, error="answered 503", retry=retry, may_succeed=may_succeed)


def due(store: Store, *, now: float) -> list[str]:
    """Return the keys of the due deliveries."""
    return [waiting.dedup_key for waiting in store.outbox.due(now=now, limit=10)]


def test_due_deliveries_are_attempted_longest_overdue_first(outbox: Store) -> None:
    assert due(outbox, now=NOW - 1) == []
    assert due(outbox, now=NOW) == ["late"]
    assert due(outbox, now=NOW + 60) == ["late", "soon"]
    assert len(outbox.outbox.due(now=NOW + 60, limit=1)) == 1


@pytest.mark.parametrize("state", ["delivered", "dead", "muted"])
def test_an_ended_delivery_is_not_attempted_again(outbox: Store, state: str) -> None:
    [late] = outbox.outbox.due(now=NOW)
    ended = {
        "delivered": update_after_success(late, now=NOW, repeat_seconds=None),
        "dead": fails(late, may_succeed=False),
        "muted": update_after_mute(late, now=NOW, reason=MuteReason.ENDED),
    }
    outbox.outbox.record([ended[state]])
    assert due(outbox, now=NOW) == []
    assert delivery_states(outbox) == {"due": 1, state: 1}


def test_a_failed_delivery_waits_and_counts_its_attempts(outbox: Store) -> None:
    [late] = outbox.outbox.due(now=NOW)
    outbox.outbox.record([fails(late)])
    assert due(outbox, now=NOW + 9) == []
    [again] = outbox.outbox.due(now=NOW + 10)
    assert (again.id, again.attempts, again.notification) == (late.id, 1, late.notification)


def test_a_repeated_notification_is_due_again_as_a_new_round(outbox: Store) -> None:
    [late] = outbox.outbox.due(now=NOW)
    outbox.outbox.record([fails(late)])
    outbox.outbox.record([update_after_success(late, now=NOW, repeat_seconds=30.0)])
    [again] = outbox.outbox.due(now=NOW + 30)
    assert (again.dedup_key, again.key, again.rounds, again.attempts) == ("late", "late:1", 1, 0)
    outbox.outbox.record([update_after_mute(again, now=NOW, reason=MuteReason.ENDED)])
    assert delivery_states(outbox) == {"due": 1, "delivered": 1}


def test_the_delivery_context_holds_firing_alerts_and_attempted_deliveries(store: Store, run_id: int) -> None:
    firing = alert(run_id=run_id)
    over = alert(run_id=run_id, step=1, state=AlertState.RESOLVED)
    long_over = alert(run_id=run_id, step=0, state=AlertState.RESOLVED, updated_at=NOW - 61)
    made = [
        delivery(key, receiver=receiver, made_at=NOW, run_id=run_id, episode=of.episode, told_state=of.state)
        for key, receiver, of in (("1", "hook", firing), ("2", "hook", over), ("3", "pager", firing))
    ]
    commit(store, run_id, alerts=(firing, over, long_over), deliveries=made)
    for waiting in store.outbox.due(now=NOW):
        if waiting.receiver == "hook":
            store.outbox.record([fails(waiting)])
    delivery_context = store.outbox.delivery_context(run_id, now=NOW)
    assert delivery_context.run.key == RunKey("math", "grpo")
    assert (delivery_context.alerts, delivery_context.firing) == ((firing, over), (firing,))
    assert delivery_context.tried.keys() == {("hook", firing.episode)}
    assert delivery_context.waiting == {("hook", firing.episode), ("pager", firing.episode)}
    assert not store.outbox.delivery_context(run_id, now=NOW + 61).waiting
    with pytest.raises(NotFound):
        store.outbox.delivery_context(run_id + 1, now=NOW)


def test_deliveries_are_listed_newest_first_in_pages_by_state_and_project(store: Store) -> None:
    for run in ("math/grpo", "code/sort"):
        [run_id] = begin(store, run)
        commit(store, run_id, deliveries=[delivery(f"{run[5:]}-{i}", run_id=run_id) for i in range(2)])
    for waiting in store.outbox.due(now=NOW)[::2]:
        store.outbox.record([fails(waiting, may_succeed=False)])
    assert [listed.dedup_key for listed in paged(store.deliveries.list, limit=3)] == [
        "sort-1",
        "sort-0",
        "grpo-1",
        "grpo-0",
    ]
    [dead] = store.deliveries.list(access=CODE, state=DeliveryState.DEAD).items
    assert (dead.run, dead.dedup_key, dead.last_error) == (RunKey("code", "sort"), "sort-0", "answered 503")
