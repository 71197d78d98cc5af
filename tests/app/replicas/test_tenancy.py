"""A tenancy: what it says it holds, and when it says that it holds nothing."""

from __future__ import annotations

from collections.abc import Collection
from threading import Event

from tests.fixtures.waiting import eventually
from trmon.app.replicas.tenancy import SoleOwner, Tenancy
from trmon.domain.errors import NotReady
from trmon.domain.leases import SLOTS, Standing


class Landlord:
    """Leases that are granted, shared and refused as a test says."""

    def __init__(self, *, lease_seconds: float = 10.0) -> None:
        self.lease_seconds = lease_seconds
        self.standing = Standing(fences=dict.fromkeys(range(SLOTS), 1), n_workers=1)
        self.away = False
        self.released: set[int] = set()
        self.left = Event()

    def renew(self) -> Standing:
        """See Leases."""
        if self.away:
            raise NotReady("the database is away")
        return self.standing

    def release(self, slots: Collection[int]) -> None:
        """See Leases."""
        self.released |= set(slots)

    def leave(self) -> None:
        """See Leases."""
        self.left.set()


def test_it_holds_what_is_granted_and_gives_it_up_at_the_end() -> None:
    landlord, gained = Landlord(), Event()
    tenancy = Tenancy(landlord)
    tenancy.on_gain(gained.set)
    assert tenancy.fences() == {}
    tenancy.start()
    assert gained.wait(10)
    assert tenancy.fences() == landlord.standing.fences
    tenancy.close()
    assert landlord.left.is_set()


def test_what_it_should_give_up_is_its_own_until_it_does() -> None:
    landlord = Landlord()
    landlord.standing = Standing(fences=landlord.standing.fences, n_workers=2)
    tenancy = Tenancy(landlord)
    tenancy.start()
    surplus = eventually(tenancy.surplus)
    assert surplus <= (tenancy.fences() or {}).keys()
    tenancy.release(surplus)
    assert landlord.released == surplus
    assert not surplus & (tenancy.fences() or {}).keys()
    tenancy.close()


def test_without_the_database_it_holds_nothing_once_its_leases_are_over_and_all_again_when_it_is_back() -> None:
    landlord = Landlord(lease_seconds=0.5)
    tenancy = Tenancy(landlord)
    tenancy.start()
    eventually(tenancy.fences)
    landlord.away = True
    eventually(lambda: tenancy.fences() == {})
    assert tenancy.surplus() == frozenset()
    landlord.away = False
    eventually(tenancy.fences)
    tenancy.close()


def test_who_is_alone_owns_all_and_gives_nothing_up() -> None:
    owner = SoleOwner()
    owner.release([1])
    assert (owner.fences(), owner.surplus()) == (None, frozenset())
