"""The outbox: tried until it was taken or given up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.store.builders import NOW, alert, append, commit, delivery, start_intake
from trmon.domain.access import EVERYTHING, Access, Scope
from trmon.domain.alerts import AlertState, DeliveryState
from trmon.domain.errors import NotFound
from trmon.domain.identity import RunKey
from trmon.domain.muting import Mute
from trmon.store import Store

NONE = {state.value: 0 for state in DeliveryState}


@pytest.fixture
def outbox(store: Store) -> Store:
    """A store whose outbox holds "late", due now, and "soon", due in a minute."""
    [receipt] = append(store, start_intake())
    commit(store, receipt.run_id, deliveries=(delivery("soon", due_at=NOW + 60), delivery("late")))
    return store


def due(store: Store, *, now: float) -> list[str]:
    """Return the keys of what is to be tried."""
    return [waiting.dedup_key for waiting in store.outbox.due(now=now, limit=10)]


def test_only_what_is_due_is_tried_the_longest_overdue_first(outbox: Store) -> None:
    assert due(outbox, now=NOW - 1) == []
    assert due(outbox, now=NOW) == ["late"]
    assert due(outbox, now=NOW + 60) == ["late", "soon"]
    assert len(outbox.outbox.due(now=NOW + 60, limit=1)) == 1


def test_what_was_taken_is_not_tried_again(outbox: Store) -> None:
    [late] = outbox.outbox.due(now=NOW)
    outbox.outbox.delivered(late.id, now=NOW)
    assert due(outbox, now=NOW) == []
    assert outbox.outbox.counts() == NONE | {"due": 1, "delivered": 1}


def test_what_failed_waits_and_counts_its_attempts(outbox: Store) -> None:
    [late] = outbox.outbox.due(now=NOW)
    outbox.outbox.failed(late.id, now=NOW, retry_at=NOW + 10, error="503")
    assert due(outbox, now=NOW + 9) == []
    [again] = outbox.outbox.due(now=NOW + 10)
    assert (again.id, again.attempts, again.body) == (late.id, 1, {"text": "run"})


def test_what_was_given_up_is_not_tried_again(outbox: Store) -> None:
    [late] = outbox.outbox.due(now=NOW)
    outbox.outbox.dead(late.id, now=NOW, error="410")
    assert due(outbox, now=NOW) == []
    assert outbox.outbox.counts() == NONE | {"due": 1, "dead": 1}


def test_what_stands_is_due_again_as_another_round(outbox: Store) -> None:
    [late] = outbox.outbox.due(now=NOW)
    outbox.outbox.failed(late.id, now=NOW, retry_at=NOW, error="503")
    outbox.outbox.delivered(late.id, now=NOW, again_at=NOW + 30)
    [again] = outbox.outbox.due(now=NOW + 30)
    assert (again.dedup_key, again.key, again.rounds, again.attempts) == ("late", "late:1", 1, 0)
    outbox.outbox.ended(late.id)
    assert outbox.outbox.counts() == NONE | {"due": 1, "delivered": 1}


def test_what_is_muted_says_why(outbox: Store) -> None:
    [late] = outbox.outbox.due(now=NOW)
    outbox.outbox.muted(late.id, reason=Mute.ENDED)
    assert due(outbox, now=NOW) == []
    assert outbox.outbox.counts() == NONE | {"due": 1, "muted": 1}


def test_a_situation_is_what_fires_and_what_was_tried(store: Store) -> None:
    [receipt] = append(store, start_intake())
    firing = alert(run_id=receipt.run_id)
    over = alert(run_id=receipt.run_id, step=1, state=AlertState.RESOLVED)
    told = [
        replace(delivery(key), run_id=receipt.run_id, episode=of.episode, told_state=of.state)
        for key, of in (("firing", firing), ("over", over), ("firing elsewhere", firing))
    ]
    commit(store, receipt.run_id, alerts=(firing, over), deliveries=(*told[:2], replace(told[2], receiver="pager")))
    for waiting in store.outbox.due(now=NOW):
        if waiting.receiver == "hook":
            store.outbox.failed(waiting.id, now=NOW, retry_at=NOW, error="503")
    situation = store.outbox.situation(receipt.run_id, now=NOW)
    assert situation.run.key == RunKey("math", "grpo")
    assert situation.firing == (firing,)
    assert situation.tried == {("hook", firing.episode)}
    with pytest.raises(NotFound):
        store.outbox.situation(receipt.run_id + 1, now=NOW)


def test_deliveries_are_listed_newest_first_in_pages_by_state_and_project(store: Store) -> None:
    for names in (("math", "grpo"), ("code", "sort")):
        [receipt] = append(store, start_intake(*names))
        told = [replace(delivery(f"{names[1]}-{i}"), run_id=receipt.run_id) for i in range(2)]
        commit(store, receipt.run_id, deliveries=told)
    for waiting in store.outbox.due(now=NOW)[::2]:
        store.outbox.dead(waiting.id, now=NOW, error="answered 404")
    first = store.deliveries.list(access=EVERYTHING, limit=3)
    second = store.deliveries.list(access=EVERYTHING, limit=3, after=first.next)
    keys = [listed.delivery.dedup_key for listed in (*first.items, *second.items)]
    assert keys == ["sort-1", "sort-0", "grpo-1", "grpo-0"]
    code = Access(name="code", scopes=frozenset({Scope.READ}), project="code")
    [dead] = store.deliveries.list(access=code, state=DeliveryState.DEAD).items
    assert (dead.run, dead.delivery.dedup_key, dead.last_error) == (RunKey("code", "sort"), "sort-0", "answered 404")
