"""Tests listing, filtering and finding batches."""

from __future__ import annotations

import pytest

from tests.store.builders import CODE, append, batch, batch_key, begin, commit, paged, start_intake
from trmon.domain.access import EVERYTHING
from trmon.store import Store


@pytest.fixture
def run_id(store: Store) -> int:
    """A run with steps 0 to 4, each with the updates None and 0."""
    [run_id] = begin(store, "math/grpo")
    keys = [batch_key(1, step, update) for step in range(5) for update in (None, 0)]
    commit(store, run_id, batches=tuple(batch(key, run_id=run_id, ordinal=i + 1) for i, key in enumerate(keys)))
    return run_id


def test_batches_are_listed_newest_first_in_pages(store: Store, run_id: int) -> None:
    assert [row.ordinal for row in paged(store.batches.list, run_id, limit=7)] == list(range(10, 0, -1))


def test_batches_are_filtered_by_step(store: Store, run_id: int) -> None:
    found = store.batches.list(run_id, access=EVERYTHING, attempt_id=1, step=3)
    assert [(row.key.step, row.key.update) for row in found.items] == [(3, 0), (3, None)]
    assert store.batches.list(run_id, access=EVERYTHING, attempt_id=2).items == ()


def test_batches_of_another_project_are_not_seen(store: Store, run_id: int) -> None:
    assert store.batches.list(run_id, access=CODE).items == ()
    assert store.batches.decisions(batch_key(1, 3), access=CODE) == ()


def test_gauge_rows_are_listed_one_per_step_in_pages(store: Store, run_id: int) -> None:
    append(store, start_intake(attempt="b", launch="launch-2"))
    later = [batch_key(2, step, update) for step in (3, 4) for update in (0, 1)]
    commit(store, run_id, batches=tuple(batch(key, run_id=run_id, ordinal=11 + i) for i, key in enumerate(later)))
    pages = [store.batches.gauge_keys(run_id, access=EVERYTHING, limit=3)]
    while pages[-1]:
        pages.append(store.batches.gauge_keys(run_id, access=EVERYTHING, limit=3, before=pages[-1][-1]))
    whole = [batch_key(1, step) for step in range(4, -1, -1)]
    assert [key for page in pages for key in page] == [batch_key(2, 4, 1), batch_key(2, 3, 1), *whole]
    assert [len(page) for page in pages] == [3, 3, 1, 0]


def test_gauge_rows_are_filtered_by_range_and_attempt(store: Store, run_id: int) -> None:
    def steps(**wanted: int) -> list[int]:
        return [key.step for key in store.batches.gauge_keys(run_id, access=EVERYTHING, **wanted)]

    assert steps(from_step=1, to_step=3) == [3, 2, 1]
    assert steps(attempt_id=2) == []
    assert store.batches.gauge_keys(run_id, access=CODE) == ()
