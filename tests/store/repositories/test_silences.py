"""Tests silences of one project or all: active for a time and listed afterwards."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.store.builders import CODE, NOW, paged, silence
from trmon.domain.access import EVERYTHING
from trmon.domain.alerts.silences import Silence
from trmon.domain.errors import NotFound
from trmon.store import Store


@pytest.fixture
def silences(store: Store) -> list[Silence]:
    """A silence of all projects, one of `code`, and one of `math` that has not started."""
    return [silence(store), silence(store, project="code"), silence(store, project="math", starts_at=NOW + 30)]


def test_silences_are_listed_newest_first_in_pages(store: Store, silences: list[Silence]) -> None:
    assert paged(store.silences.list, limit=2) == silences[::-1]
    assert store.silences.list(access=EVERYTHING, ending_after=NOW + 60).items == ()


def test_active_silences_of_a_run_are_those_of_its_project_and_global_ones(
    store: Store, silences: list[Silence], run_id: int
) -> None:
    everywhere, _, of_math = silences
    found = [store.outbox.delivery_context(run_id, now=NOW + later).silences for later in (-1, 0, 30, 60)]
    assert found == [(), (everywhere,), (everywhere, of_math), ()]


def test_silences_of_another_project_are_not_found(store: Store, silences: list[Silence]) -> None:
    assert store.silences.list(access=CODE).items == (silences[1],)
    for other in (silences[0], silences[2]):
        with pytest.raises(NotFound):
            store.silences.expire(other.id, access=CODE, now=NOW).result()
    assert list(store.silences.list(access=EVERYTHING).items) == silences[::-1]


def test_an_ended_silence_stays_listed_with_its_end(store: Store, silences: list[Silence]) -> None:
    of_code = silences[1]
    for now in (NOW + 10, NOW + 20):
        store.silences.expire(of_code.id, access=CODE, now=now).result()
    assert store.silences.list(access=CODE).items == (replace(of_code, ends_at=NOW + 10),)
