"""Tests leases: one holder per slot, evenly shared, and no commits under a lost lease."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select, update

from tests.store.builders import Gate, append, report_intake, start_intake
from tests.store.conftest import ON_POSTGRES
from trmon.domain.errors import Fenced
from trmon.domain.ownership import SLOTS, in_slots, slot_of
from trmon.domain.pipeline.publish import Frontier, RunUpdate
from trmon.store import Store
from trmon.store.database.engines import Engines
from trmon.store.repositories.leases import Leases, check_fences
from trmon.store.schema import tables

pytestmark = ON_POSTGRES


@pytest.fixture
def one(engines: Engines) -> Leases:
    return Leases(engines.writing, holder="one", lease_seconds=10.0)


@pytest.fixture
def other(engines: Engines) -> Leases:
    return Leases(engines.writing, holder="other", lease_seconds=10.0)


def expire(engines: Engines, holder: str) -> None:
    with engines.writing.begin() as connection:
        connection.execute(update(tables.lease).where(tables.lease.c.holder == holder).values(expires_at=0.0))
        connection.execute(update(tables.worker).where(tables.worker.c.holder == holder).values(seen_at=0.0))


def test_a_single_worker_holds_every_slot_until_it_leaves(one: Leases, other: Leases) -> None:
    standing = one.renew()
    assert (set(standing.fences), standing.n_workers) == (set(range(SLOTS)), 1)
    assert set(standing.fences.values()) == {1}
    assert one.renew() == standing
    one.leave()
    standing = other.renew()
    assert (len(standing.fences), standing.n_workers) == (SLOTS, 1)


def test_a_second_worker_gets_its_share_after_the_first_releases_it(one: Leases, other: Leases) -> None:
    one.renew()
    assert other.renew().fences == {}
    standing = one.renew()
    assert len(standing.surplus) == SLOTS // 2
    one.release(standing.surplus)
    taken = other.renew()
    assert (set(taken.fences), set(taken.fences.values())) == (standing.surplus, {2})
    assert one.renew().surplus == taken.surplus == frozenset()


def test_the_slots_that_a_worker_takes_have_some_of_the_runs_that_start_together(one: Leases, other: Leases) -> None:
    one.renew()
    other.renew()
    one.release(range(SLOTS))
    taken = other.renew().fences
    assert len(taken) == SLOTS // 2
    assert 8 <= len(in_slots(range(1, 21), taken)) <= 12


def test_an_expired_lease_is_renewed_unless_it_was_taken_over(one: Leases, other: Leases, engines: Engines) -> None:
    first = one.renew()
    expire(engines, "one")
    assert one.renew() == first
    expire(engines, "one")
    assert set(other.renew().fences.values()) == {2}
    assert one.renew().fences == {}


def test_two_workers_that_start_together_never_hold_the_same_slot(engines: Engines) -> None:
    processes = [Leases(engines.writing, holder=str(i), lease_seconds=10.0) for i in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            standings = list(pool.map(Leases.renew, processes))
            for process, standing in zip(processes, standings, strict=True):
                process.release(standing.surplus)
    standings = list(map(Leases.renew, processes))
    held = [slot for standing in standings for slot in standing.fences]
    assert sorted(held) == list(range(SLOTS))
    assert [len(standing.fences) for standing in standings] == [SLOTS // 4] * 4


def test_a_run_update_is_written_only_under_its_fence(one: Leases, other: Leases, store: Store) -> None:
    receipts = append(store, report_intake(run="lost"), report_intake(run="held"))
    outcomes = [RunUpdate(run_id=receipt.run_id, last_step=7, frontier=Frontier()) for receipt in receipts]
    fences = one.renew().fences
    lost = slot_of(receipts[0].run_id)
    one.release([lost])
    other.renew()
    futures = store.run_log.commit(outcomes, fences=fences)
    with pytest.raises(Fenced, match=f"another worker has taken slots {lost}"):
        futures[0].result(30)
    assert futures[1].result(30) is None
    assert [store.runs.by_id(outcome.run_id).last_step for outcome in outcomes] == [None, 7]


def test_a_slot_is_not_taken_over_during_a_commit_under_it(one: Leases, other: Leases, engines: Engines) -> None:
    fence = one.renew().fences[5]
    with engines.writing.begin() as connection:
        check_fences(connection, {5: fence})
        expire(engines, "one")
        assert set(other.renew().fences) == set(range(SLOTS)) - {5}
    assert set(other.renew().fences) == set(range(SLOTS))


def test_an_update_from_before_a_lost_lease_is_never_written_later(one: Leases, other: Leases, store: Store) -> None:
    receipts = append(store, *(start_intake(run=f"run {i}") for i in range(SLOTS + 1)))
    ids = sorted(receipt.run_id for receipt in receipts)
    first, last = ids[0], ids[0] + SLOTS
    stale = one.renew().fences
    one.leave()
    other.renew()
    other.leave()
    held = one.renew().fences
    with Gate(store.writer):
        before = store.run_log.commit([RunUpdate(run_id=first, last_step=7, frontier=Frontier())], fences=stale)
        after = store.run_log.commit([RunUpdate(run_id=last, last_step=7, frontier=Frontier())], fences=held)
    with pytest.raises(Fenced, match="another worker has taken slots"):
        before[0].result(30)
    assert after[0].result(30) is None
    assert [store.runs.by_id(run_id).last_step for run_id in (first, last)] == [None, 7]


def test_workers_that_return_together_do_not_wait_for_each_other(one: Leases, other: Leases, engines: Engines) -> None:
    """A session that waits for a lock fails after ten seconds."""
    one.renew()
    other.renew()
    one.release([5])
    for holder in ("one", "other"):
        expire(engines, holder)
    with engines.writing.begin() as connection:
        # As a renewal does, until it is committed.
        for table in (tables.lease, tables.worker):
            own = select(table).where(table.c.holder == "one").with_for_update()
            assert connection.execute(own).all()
        standing = other.renew()
    assert (standing.fences, standing.n_workers) == ({5: 2}, 2)
    assert set(one.renew().fences) == set(range(SLOTS)) - {5}


@pytest.mark.parametrize("ahead_seconds", [120.0, 1800.0, 1e11])
def test_a_worker_that_ended_before_the_clock_was_set_back_holds_nothing(
    one: Leases, other: Leases, engines: Engines, ahead_seconds: float
) -> None:
    one.renew()
    with engines.writing.begin() as connection:
        connection.execute(update(tables.lease).values(expires_at=tables.lease.c.expires_at + ahead_seconds))
        connection.execute(update(tables.worker).values(seen_at=tables.worker.c.seen_at + ahead_seconds))
    standing = other.renew()
    assert (set(standing.fences), standing.n_workers) == (set(range(SLOTS)), 1)
