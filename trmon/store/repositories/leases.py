"""Leases of slots in PostgreSQL, which expire by its clock: a slot has one holder, and a fence that grows with each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Connection,
    Double,
    Engine,
    any_,
    bindparam,
    cast,
    delete,
    extract,
    func,
    or_,
    select,
    update,
)

from trmon.domain.errors import Fenced
from trmon.domain.ownership import SLOTS, Fences, SlotHoldings, spread_order
from trmon.store.database.pg_statement import LockSpace, PgStatement, lock_number, lock_numbers, try_lock_number
from trmon.store.database.upsert import insert_new, unnest_rows, upsert
from trmon.store.schema import tables

_NOW = cast(extract("epoch", func.clock_timestamp()), Double)
_LEASE, _WORKER = tables.lease.c, tables.worker.c
MAX_AHEAD_SECONDS = 60.0
"""A time further in the future was written before the clock was set back, and counts as expired: the runs of a worker
that ended before wait for as long at most."""
_SLOTS = any_(bindparam("slots", type_=ARRAY(BigInteger)))
_GIVEN = unnest_rows(tables.lease, ("slot", "fence")).subquery()
_IS_HELD = (_LEASE.slot == _GIVEN.c.slot) & (_LEASE.fence == _GIVEN.c.fence) & _LEASE.holder.is_not(None)
_HELD = PgStatement(select(_LEASE.slot).join_from(tables.lease, _GIVEN, _IS_HELD))
"""The slots, given with a fence each, that are held under it."""


class Leases:
    """The slots that one process, identified by name, holds; each call is one transaction."""

    def __init__(self, engine: Engine, *, holder: str, lease_seconds: float) -> None:
        self.lease_seconds = lease_seconds
        self._engine = engine
        self._holder = holder

    def renew(self) -> SlotHoldings:
        """Record a heartbeat, extend the held leases and take free slots up to the fair share. Errors: NotReady."""
        with self._engine.begin() as connection:
            holdings = SlotHoldings(fences=self._extend(connection), n_workers=self._count_workers(connection))
            taken = self._take_free(connection, at_most=holdings.missing) if holdings.missing else {}
        return SlotHoldings(fences={**holdings.fences, **taken}, n_workers=holdings.n_workers)

    def release(self, slots: Collection[int]) -> None:
        """Release slots, so that other processes can take them at once. Errors: NotReady."""
        own = (_LEASE.slot == _SLOTS) & (_LEASE.holder == self._holder)
        with self._engine.begin() as connection:
            connection.execute(update(tables.lease).where(own).values(holder=None), {"slots": list(slots)})

    def leave(self) -> None:
        """Release all slots, because the process ends. Errors: NotReady."""
        with self._engine.begin() as connection:
            connection.execute(update(tables.lease).where(_LEASE.holder == self._holder).values(holder=None))
            connection.execute(delete(tables.worker).where(_WORKER.holder == self._holder))

    def _count_workers(self, connection: Connection) -> int:
        """Record a heartbeat, delete dead workers and return the number of live ones."""
        now = connection.scalar(select(_NOW))
        upsert(connection, tables.worker, key=("holder",), rows=[{"holder": self._holder, "seen_at": now}])
        # A locked row is skipped, since its worker is just recording a heartbeat; waiting could deadlock.
        unseen = or_(_WORKER.seen_at < _NOW - self.lease_seconds, _WORKER.seen_at > _NOW + MAX_AHEAD_SECONDS)
        late = select(_WORKER.holder).where(unseen)
        late = late.with_for_update(skip_locked=True)
        connection.execute(delete(tables.worker).where(_WORKER.holder.in_(late)))
        return connection.scalar(select(func.count()).select_from(tables.worker)) or 1

    def _extend(self, connection: Connection) -> dict[int, int]:
        own = update(tables.lease).where(_LEASE.holder == self._holder).values(expires_at=_NOW + self.lease_seconds)
        return {row.slot: row.fence for row in connection.execute(own.returning(_LEASE.slot, _LEASE.fence))}

    def _take_free(self, connection: Connection, *, at_most: int) -> dict[int, int]:
        """Take free slots; a slot in which its last holder is still committing is left for the next call."""
        if not connection.scalar(select(func.count()).select_from(tables.lease)):
            new = [{"slot": slot, "fence": 0, "expires_at": 0.0} for slot in range(SLOTS)]
            insert_new(connection, tables.lease, rows=new)
        ahead = _LEASE.expires_at > _NOW + self.lease_seconds + MAX_AHEAD_SECONDS
        free = or_(_LEASE.holder.is_(None), _LEASE.expires_at < _NOW, ahead)
        query = select(_LEASE.slot).where(free).order_by(spread_order(_LEASE.slot)).limit(at_most)
        found = connection.scalars(query.with_for_update(skip_locked=True)).all()
        slots = [slot for slot in found if try_lock_number(connection, lock_number(LockSpace.LEASE, slot))]
        take = (
            update(tables.lease)
            .where(_LEASE.slot == _SLOTS)
            .values(holder=self._holder, fence=_LEASE.fence + 1, expires_at=_NOW + self.lease_seconds)
            .returning(_LEASE.slot, _LEASE.fence)
        )
        return {row.slot: row.fence for row in connection.execute(take, {"slots": slots})}


def check_fences(connection: Connection, fences: Fences) -> None:
    """Verify that slots are held under their fences until the transaction ends. Errors: Fenced.

    Other processes cannot take a slot before the transactions that verified it have ended.
    Args: fences: one at least.
    """
    lock_numbers(connection, [lock_number(LockSpace.LEASE, slot) for slot in fences], shared=True)
    rows = _HELD.rows(connection, {"slot": list(fences), "fence": list(fences.values())})
    if lost := fences.keys() - {slot for (slot,) in rows}:
        raise Fenced(f"another worker has taken slots {', '.join(map(str, sorted(lost)))}")


def lease_holders(connection: Connection) -> Sequence[Any]:
    """Return the holder, the number of slots and the seconds left of each process, and of the slots without one."""
    left = func.min(_LEASE.expires_at) - _NOW
    counted = select(_LEASE.holder, func.count().label("n_slots"), left.label("seconds_left")).group_by(_LEASE.holder)
    return connection.execute(counted.order_by(_LEASE.holder)).all()
