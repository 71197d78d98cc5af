"""LeaseManager: which slots it reports as held, and when it reports none."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event, Semaphore

import pytest
from sqlalchemy import text

from tests.fixtures.waiting import eventually
from trmon.domain.errors import NotReady
from trmon.domain.health_check import HUNG_SECONDS
from trmon.domain.ownership import SLOTS, SlotHoldings
from trmon.fleet.heartbeats import Heartbeat
from trmon.fleet.lease_renewal import LeaseManager
from trmon.store.database import engines_of
from trmon.store.database.engines import Engines
from trmon.store.repositories.leases import Leases


class FakeLeases:
    """Leases that a test grants, shares and refuses; with `answers`, each renewal returns once there is one."""

    def __init__(self, *, lease_seconds: float = 10.0, answers: Semaphore | None = None) -> None:
        self.lease_seconds = lease_seconds
        self.holdings = SlotHoldings(fences=dict.fromkeys(range(SLOTS), 1), n_workers=1)
        self.unavailable = False
        self.released: set[int] = set()
        self.refused, self.left = Event(), Event()
        self.called, self.answers = Semaphore(0), answers

    def renew(self) -> SlotHoldings:
        if self.unavailable:
            raise NotReady("the database is unavailable")
        holdings = self.holdings
        self.called.release()
        assert self.answers is None or self.answers.acquire(timeout=30)
        return holdings

    def release(self, slots: Collection[int]) -> None:
        if self.unavailable:
            self.refused.set()
            raise NotReady("the database is unavailable")
        self.released |= set(slots)
        self.holdings = self.holdings.without(slots)

    def leave(self) -> None:
        self.left.set()


@contextmanager
def holding(leases: FakeLeases | Leases, heartbeat: Heartbeat | None = None) -> Iterator[LeaseManager]:
    """Run a manager, which holds slots when it is yielded."""
    lease_manager = LeaseManager(leases, heartbeat)  # type: ignore[arg-type]
    lease_manager.start()
    eventually(lease_manager.fences)
    yield lease_manager
    lease_manager.close()


def test_granted_slots_are_held_until_close_releases_them() -> None:
    leases, gained = FakeLeases(), Event()
    lease_manager = LeaseManager(leases)
    lease_manager.on_gain = gained.set
    assert lease_manager.fences() == {}
    lease_manager.start()
    assert gained.wait(10)
    assert lease_manager.fences() == leases.holdings.fences
    lease_manager.close()
    assert leases.left.is_set()


def test_surplus_slots_are_held_until_they_are_released() -> None:
    leases = FakeLeases()
    leases.holdings = SlotHoldings(fences=leases.holdings.fences, n_workers=2)
    with holding(leases) as lease_manager:
        surplus = lease_manager.surplus()
        assert surplus
        assert surplus <= (lease_manager.fences() or {}).keys()
        lease_manager.release(surplus)
        eventually(lambda: leases.released == surplus)
        assert not surplus & (lease_manager.fences() or {}).keys()


def test_without_the_database_no_slot_is_held_after_the_leases_expire_and_all_are_once_it_is_back() -> None:
    leases = FakeLeases(lease_seconds=0.5)
    with holding(leases) as lease_manager:
        leases.unavailable = True
        eventually(lambda: lease_manager.fences() == {})
        assert lease_manager.surplus() == frozenset()
        leases.unavailable = False
        eventually(lease_manager.fences)


def test_while_the_worker_hangs_no_lease_is_renewed_and_all_are_once_it_makes_progress() -> None:
    now = [0.0]
    heartbeat = Heartbeat(clock=lambda: now[0])
    with holding(FakeLeases(lease_seconds=0.5), heartbeat) as lease_manager:
        now[0] = HUNG_SECONDS + 1.0
        eventually(lambda: lease_manager.fences() == {})
        heartbeat.beat()
        eventually(lease_manager.fences)


def test_a_release_that_failed_is_repeated_once_the_database_is_back() -> None:
    leases = FakeLeases(lease_seconds=0.5)
    with holding(leases) as lease_manager:
        leases.unavailable = True
        lease_manager.release([5])
        assert leases.refused.wait(30)
        leases.unavailable = False
        eventually(lambda: leases.released == {5})


def test_a_renewal_in_flight_does_not_restore_released_slots() -> None:
    answers = Semaphore(1)
    leases = FakeLeases(lease_seconds=60.0, answers=answers)
    with holding(leases) as lease_manager:
        lease_manager.release([5])
        assert all(leases.called.acquire(timeout=30) for _ in range(2))
        lease_manager.release([6])
        answers.release()
        assert leases.called.acquire(timeout=30)
        assert lease_manager.fences() == dict.fromkeys(set(range(SLOTS)) - {5, 6}, 1)
        answers.release()


@pytest.mark.server("postgres")
def test_no_caller_waits_for_a_renewal_that_hangs_in_the_database(postgres_url: str) -> None:
    engines = engines_of(postgres_url)
    with (
        holding(Leases(engines.writing, holder="one", lease_seconds=10.0)) as lease_manager,
        ThreadPoolExecutor() as pool,
        engines.writing.connect() as blocker,
    ):
        blocker.execute(text("SELECT slot FROM lease WHERE slot = 0 FOR UPDATE"))
        lease_manager.release([5])
        eventually(lambda: is_waiting(engines))
        calls = (lambda: lease_manager.release([6]), lease_manager.fences, lease_manager.surplus)
        _, fences, surplus = [pool.submit(call).result(5) for call in calls]
        assert is_waiting(engines), "the renewal has ended"
        assert set(fences or ()) == set(range(SLOTS)) - {5, 6}
        assert surplus == frozenset()
        blocker.rollback()
    engines.dispose()


def is_waiting(engines: Engines) -> bool:
    """Return whether a session of the database waits for a lock."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid <> pg_backend_pid()")
    with engines.reader.connect() as connection:
        return bool(connection.scalar(waiting))
