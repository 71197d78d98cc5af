"""The outbox: tried until it was taken or given up."""

from __future__ import annotations

import pytest

from tests.store.builders import NOW, append, commit, delivery, start_intake
from trmon.store import Store


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
    assert outbox.outbox.counts() == {"due": 1, "delivered": 1, "dead": 0}


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
    assert outbox.outbox.counts() == {"due": 1, "delivered": 0, "dead": 1}
