"""Tests reading the stream of events."""

from __future__ import annotations

import pytest

from tests.store.builders import CODE, NOW, begin, commit
from trmon.domain.access import EVERYTHING
from trmon.domain.identity import RunKey
from trmon.domain.pipeline.run_update import Event
from trmon.store import Store


@pytest.fixture
def run_ids(store: Store) -> list[int]:
    """math/grpo with the events 1 and 3, code/sort with 2."""
    ids = begin(store, "math/grpo", "code/sort")
    for i, run_id in enumerate((*ids, ids[0])):
        commit(store, run_id, events=(Event(kind="batch", data={"step": i + 1}, at=NOW + i),))
    return ids


def steps(store: Store, after: int, **options: object) -> list[int]:
    """Return the steps of the events."""
    found = store.events.after(after, **{"access": EVERYTHING} | options)
    return [stored.event.data["step"] for stored in found]


def test_reading_events_continues_after_the_last_one_read(store: Store, run_ids: list[int]) -> None:
    [first, *_] = store.events.after(0, access=EVERYTHING)
    assert (first.run_id, first.key, first.event.at) == (run_ids[0], RunKey("math", "grpo"), NOW)
    assert steps(store, 0) == [1, 2, 3]
    assert steps(store, first.id) == [2, 3]
    assert steps(store, 0, limit=1) == [1]
    assert steps(store, store.events.last_id()) == []


def test_events_are_filtered_by_run_and_project(store: Store, run_ids: list[int]) -> None:
    assert steps(store, 0, run=RunKey("math", "grpo")) == [1, 3]
    assert steps(store, 0, access=CODE) == [2]
    assert steps(store, 0, access=CODE, run=RunKey("math", "grpo")) == []


def test_events_of_other_runs_are_skipped_once(store: Store, run_ids: list[int]) -> None:
    found, place = store.events.read_after(0, access=EVERYTHING, run=RunKey("code", "sort"), limit=10)
    assert ([stored.event.data["step"] for stored in found], place) == ([2], store.events.last_id())
    assert store.events.read_after(place, access=EVERYTHING, run=RunKey("code", "sort"), limit=10) == ([], place)
    assert store.events.read_after(place + 5, access=EVERYTHING, run=None, limit=10) == ([], place + 5)


def test_a_full_page_continues_after_its_last_event(store: Store, run_ids: list[int]) -> None:
    [first], place = store.events.read_after(0, access=EVERYTHING, run=RunKey("math", "grpo"), limit=1)
    assert place == first.id
