"""Leases of slots of runs, in PostgreSQL and by its clock: one holder a slot, and a fence that grows with each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cache
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

from trmon.domain.model.errors import Fenced
from trmon.domain.model.slots import SLOTS, Fences, SlotHoldings
from trmon.store.database import advisory_locks
from trmon.store.database.advisory_locks import LockSpace
from trmon.store.database.pg_statement import PgStatement
from trmon.store.database.upsert import insert_new, unnest_rows, upsert
from trmon.store.schema import tables

LEASE_SECONDS = 10.0
"""How long a slot stays with a process that says nothing: what a crash delays the alerts of its runs."""

_NOW = cast(extract("epoch", func.clock_timestamp()), Double)
_LEASE, _WORKER = tables.lease.c, tables.worker.c
FORESIGHT_SECONDS = 3600.0
"""Who is said to live or to hold longer than so far ahead was so by a clock that has been put back since."""
_SLOTS = any_(bindparam("slots", type_=ARRAY(BigInteger)))


class Leases:
    """The slots that one process, by its name, holds of the database; each call is a transaction of its own."""

    def __init__(self, engine: Engine, *, holder: str, lease_seconds: float = LEASE_SECONDS) -> None:
        self.lease_seconds = lease_seconds
        self._engine = engine
        self._holder = holder

    def renew(self) -> SlotHoldings:
        """Say that the process lives, keep what it holds, take what it lacks and nobody holds. Errors: NotReady."""
        with self._engine.begin() as connection:
            standing = SlotHoldings(fences=self._kept(connection), n_workers=self._counted(connection))
            taken = self._taken(connection, at_most=standing.missing) if standing.missing else {}
        return SlotHoldings(fences={**standing.fences, **taken}, n_workers=standing.n_workers)

    def release(self, slots: Collection[int]) -> None:
        """Give slots up, for others to take at once. Errors: NotReady."""
        own = (_LEASE.slot == _SLOTS) & (_LEASE.holder == self._holder)
        with self._engine.begin() as connection:
            connection.execute(update(tables.lease).where(own).values(holder=None), {"slots": list(slots)})

    def leave(self) -> None:
        """Give up everything: the process ends. Errors: NotReady."""
        with self._engine.begin() as connection:
            connection.execute(update(tables.lease).where(_LEASE.holder == self._holder).values(holder=None))
            connection.execute(delete(tables.worker).where(_WORKER.holder == self._holder))

    def _counted(self, connection: Connection) -> int:
        """Note that the process lives, and return how many do."""
        now = connection.scalar(select(_NOW))
        upsert(connection, tables.worker, key=("holder",), rows=[{"holder": self._holder, "seen_at": now}])
        # One that comes back at this very moment is skipped: two that removed each other would wait in a circle.
        unseen = or_(_WORKER.seen_at < _NOW - self.lease_seconds, _WORKER.seen_at > _NOW + FORESIGHT_SECONDS)
        late = select(_WORKER.holder).where(unseen)
        late = late.with_for_update(skip_locked=True)
        connection.execute(delete(tables.worker).where(_WORKER.holder.in_(late)))
        return connection.scalar(select(func.count()).select_from(tables.worker)) or 1

    def _kept(self, connection: Connection) -> dict[int, int]:
        own = update(tables.lease).where(_LEASE.holder == self._holder).values(expires_at=_NOW + self.lease_seconds)
        return {row.slot: row.fence for row in connection.execute(own.returning(_LEASE.slot, _LEASE.fence))}

    def _taken(self, connection: Connection, *, at_most: int) -> dict[int, int]:
        """Take free slots in which no commit of their last holder is under way; those are taken the next time."""
        _make_slots(connection)
        ahead = _LEASE.expires_at > _NOW + self.lease_seconds + FORESIGHT_SECONDS
        free = or_(_LEASE.holder.is_(None), _LEASE.expires_at < _NOW, ahead)
        found = select(_LEASE.slot).where(free).order_by(_LEASE.slot).limit(at_most).with_for_update(skip_locked=True)
        slots = [slot for slot in connection.scalars(found).all() if _is_quiet(connection, slot)]
        taken = (
            update(tables.lease)
            .where(_LEASE.slot == _SLOTS)
            .values(holder=self._holder, fence=_LEASE.fence + 1, expires_at=_NOW + self.lease_seconds)
            .returning(_LEASE.slot, _LEASE.fence)
        )
        return {row.slot: row.fence for row in connection.execute(taken, {"slots": slots})}


def check_fences(connection: Connection, fences: Fences) -> None:
    """Make sure, until the transaction ends, that slots are still held under their fences. Errors: Fenced.

    Whoever takes a slot waits for the end of the transactions that have checked it.
    """
    if not fences:
        return
    advisory_locks.lock_numbers(
        connection, [advisory_locks.lock_number(LockSpace.LEASE, slot) for slot in fences], shared=True
    )
    held = _held().rows(connection, {"slot": list(fences), "fence": list(fences.values())})
    found = {slot for (slot,) in held}
    if lost := fences.keys() - found:
        raise Fenced(f"another worker has taken slots {', '.join(map(str, sorted(lost)))}")


def holders(connection: Connection) -> Sequence[Any]:
    """Return the holder, the number of slots and the seconds left of each process that holds any, and None's."""
    left = func.min(_LEASE.expires_at) - _NOW
    counted = select(_LEASE.holder, func.count().label("n_slots"), left.label("seconds_left")).group_by(_LEASE.holder)
    return connection.execute(counted.order_by(_LEASE.holder)).all()


@cache
def _held() -> PgStatement:
    """Return the query for those slots, of some with a fence each, that are held under it."""
    given = unnest_rows(tables.lease, ("slot", "fence")).subquery()
    same = (_LEASE.slot == given.c.slot) & (_LEASE.fence == given.c.fence) & _LEASE.holder.is_not(None)
    return PgStatement(select(_LEASE.slot).join_from(tables.lease, given, same))


def _is_quiet(connection: Connection, slot: int) -> bool:
    return bool(
        connection.scalar(select(func.pg_try_advisory_xact_lock(advisory_locks.lock_number(LockSpace.LEASE, slot))))
    )


def _make_slots(connection: Connection) -> None:
    if not connection.scalar(select(func.count()).select_from(tables.lease)):
        slots = [{"slot": slot, "fence": 0, "expires_at": 0.0} for slot in range(SLOTS)]
        insert_new(connection, tables.lease, rows=slots)
