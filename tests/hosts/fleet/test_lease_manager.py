"""A tenancy: what it says it holds, and when it says that it holds nothing."""

from __future__ import annotations

from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Semaphore

import pytest
from sqlalchemy import text

from tests.fixtures.waiting import eventually
from trmon.domain.model.errors import NotReady
from trmon.domain.model.slots import SLOTS, SlotHoldings
from trmon.hosts.fleet.lease_manager import LeaseManager
from trmon.runner.ownership import SoleOwner
from trmon.store.database.connect import engines_of
from trmon.store.database.engines import Engines
from trmon.store.repositories.leases import Leases


class SlowLandlord:
    """Leases of which each renewal is answered when a test says so, with what was held when it began."""

    lease_seconds = 60.0

    def __init__(self) -> None:
        self.asked, self.answers = Semaphore(0), Semaphore(0)
        self.held = set(range(SLOTS))

    def renew(self) -> SlotHoldings:
        """See Leases."""
        standing = SlotHoldings(fences=dict.fromkeys(self.held, 1), n_workers=2)
        self.asked.release()
        assert self.answers.acquire(timeout=30)
        return standing

    def release(self, slots: Collection[int]) -> None:
        """See Leases."""
        self.held -= set(slots)

    def leave(self) -> None:
        """See Leases."""


class Landlord:
    """Leases that are granted, shared and refused as a test says."""

    def __init__(self, *, lease_seconds: float = 10.0) -> None:
        self.lease_seconds = lease_seconds
        self.standing = SlotHoldings(fences=dict.fromkeys(range(SLOTS), 1), n_workers=1)
        self.away = False
        self.released: set[int] = set()
        self.refused = Event()
        self.left = Event()

    def renew(self) -> SlotHoldings:
        """See Leases."""
        if self.away:
            raise NotReady("the database is away")
        return self.standing

    def release(self, slots: Collection[int]) -> None:
        """See Leases."""
        if self.away:
            self.refused.set()
            raise NotReady("the database is away")
        self.released |= set(slots)
        self.standing = self.standing.without(slots)

    def leave(self) -> None:
        """See Leases."""
        self.left.set()


def test_it_holds_what_is_granted_and_gives_it_up_at_the_end() -> None:
    landlord, gained = Landlord(), Event()
    lease_manager = LeaseManager(landlord)
    lease_manager.on_gain(gained.set)
    assert lease_manager.fences() == {}
    lease_manager.start()
    assert gained.wait(10)
    assert lease_manager.fences() == landlord.standing.fences
    lease_manager.close()
    assert landlord.left.is_set()


def test_what_it_should_give_up_is_its_own_until_it_does() -> None:
    landlord = Landlord()
    landlord.standing = SlotHoldings(fences=landlord.standing.fences, n_workers=2)
    lease_manager = LeaseManager(landlord)
    lease_manager.start()
    surplus = eventually(lease_manager.surplus)
    assert surplus <= (lease_manager.fences() or {}).keys()
    lease_manager.release(surplus)
    eventually(lambda: landlord.released == surplus)
    assert not surplus & (lease_manager.fences() or {}).keys()
    lease_manager.close()


def test_without_the_database_it_holds_nothing_once_its_leases_are_over_and_all_again_when_it_is_back() -> None:
    landlord = Landlord(lease_seconds=0.5)
    lease_manager = LeaseManager(landlord)
    lease_manager.start()
    eventually(lease_manager.fences)
    landlord.away = True
    eventually(lambda: lease_manager.fences() == {})
    assert lease_manager.surplus() == frozenset()
    landlord.away = False
    eventually(lease_manager.fences)
    lease_manager.close()


def test_slots_that_the_database_could_not_take_back_are_released_once_it_is_there_again() -> None:
    landlord = Landlord(lease_seconds=0.5)
    lease_manager = LeaseManager(landlord)
    lease_manager.start()
    eventually(lease_manager.fences)
    landlord.away = True
    lease_manager.release([5])
    assert landlord.refused.wait(30)
    landlord.away = False
    eventually(lambda: landlord.released == {5})
    lease_manager.close()


def test_a_renewal_that_was_under_way_does_not_bring_back_what_was_given_up() -> None:
    landlord = SlowLandlord()
    lease_manager = LeaseManager(landlord)
    lease_manager.start()
    landlord.answers.release()
    eventually(lease_manager.fences)
    lease_manager.release([5])
    assert all(landlord.asked.acquire(timeout=30) for _ in range(2))
    lease_manager.release([6])
    landlord.answers.release()
    assert landlord.asked.acquire(timeout=30)
    assert lease_manager.fences() == dict.fromkeys(set(range(SLOTS)) - {5, 6}, 1)
    landlord.answers.release()
    lease_manager.close()


@pytest.mark.server("postgres")
def test_nobody_waits_for_a_renewal_that_hangs_in_the_database(postgres_url: str) -> None:
    engines = engines_of(postgres_url)
    lease_manager = LeaseManager(Leases(engines.writing, holder="one"))
    lease_manager.start()
    eventually(lease_manager.fences)
    with ThreadPoolExecutor() as pool, engines.writing.connect() as blocker:
        blocker.execute(text("SELECT slot FROM lease WHERE slot = 0 FOR UPDATE"))
        lease_manager.release([5])
        eventually(lambda: is_waiting(engines))
        calls = (lambda: lease_manager.release([6]), lease_manager.fences, lease_manager.surplus)
        _, fences, surplus = [pool.submit(call).result(5) for call in calls]
        assert is_waiting(engines), "the renewal has ended"
        assert set(fences or ()) == set(range(SLOTS)) - {5, 6}
        assert surplus == frozenset()
        blocker.rollback()
    lease_manager.close()
    engines.dispose()


def is_waiting(engines: Engines) -> bool:
    """Return whether a session of the database waits for a lock."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()")
    with engines.reader.connect() as connection:
        return bool(connection.scalar(waiting))


def test_who_is_alone_owns_all_and_gives_nothing_up() -> None:
    owner = SoleOwner()
    owner.release([1])
    assert (owner.fences(), owner.surplus()) == (None, frozenset())
