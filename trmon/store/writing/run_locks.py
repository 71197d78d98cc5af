"""How writers of different processes keep the order of each run: on PostgreSQL many commit at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import starmap

import msgspec
from sqlalchemy import ARRAY, BigInteger, Connection, any_, bindparam, select

from trmon.domain.model.identity import RunKey
from trmon.store.database import advisory_locks
from trmon.store.database.advisory_locks import LockSpace
from trmon.store.database.engines import RetryTransaction
from trmon.store.database.pg_statement import PgStatement
from trmon.store.database.upsert import unnest_rows
from trmon.store.registry.registry_entries import ArrivedMessage, entries_of, make_runs, select_entries
from trmon.store.registry.run_registry import RunRegistry
from trmon.store.schema import tables
from trmon.store.writing.transaction import WriteItem
from trmon_client.core import wire

MAX_KNOWN = 100_000

_IDS = any_(bindparam("ids", type_=ARRAY(BigInteger)))
_RANKS = any_(bindparam("ranks", type_=ARRAY(BigInteger)))
_SPOKEN = select_entries(tables.run.c.id == _IDS, claims=tables.claim.c.rank == _RANKS)
"""The runs of a group, with the claims of the ranks that speak in it."""
_SENT = PgStatement(_SPOKEN)
_Spoken = msgspec.defstruct("_Spoken", map(str, _SPOKEN.selected_columns.keys()))


class RunLocks:
    """Locks the runs of a group, and reads anew what the directory remembers of them.

    All of a group's runs are locked before any row of them gets its id, smallest number first, and stay locked until
    the group is visible. So the rows of a run become visible in the order of their ids, although transactions
    commit in any order; and nobody waits in a circle. Messages and the run's other rows have locks of their own:
    trainers do not wait for the run's worker.
    """

    def __init__(self, directory: RunRegistry) -> None:
        self._directory = directory
        self._known: dict[RunKey, int] = {}

    def forget(self) -> None:
        """Drop everything; the tables know it."""
        self._known.clear()

    def take(self, connection: Connection, works: Sequence[WriteItem]) -> None:
        """Lock the runs of works. Errors: Again when one of them was renamed or deleted meanwhile."""
        refs = [work.run for work in works]
        arrivals = [ref for ref in refs if isinstance(ref, ArrivedMessage)]
        spoken = self._ids(connection, {arrival.key for arrival in arrivals}, make=arrivals)
        edited = self._ids(connection, {ref for ref in refs if isinstance(ref, RunKey)})
        numbers = {advisory_locks.lock_number(LockSpace.MESSAGES, id_) for id_ in {*spoken.values(), *edited.values()}}
        others = {*edited.values(), *(ref for ref in refs if isinstance(ref, int))}
        numbers |= {advisory_locks.lock_number(LockSpace.ROWS, id_) for id_ in others}
        advisory_locks.lock_numbers(connection, numbers)
        if spoken:
            self._read(connection, spoken, ranks={arrival.message.rank for arrival in arrivals})

    def _ids(
        self, connection: Connection, keys: Collection[RunKey], *, make: Iterable[ArrivedMessage] = ()
    ) -> dict[RunKey, int]:
        """Return the ids of those runs that exist, after making those that begin with one of these messages."""
        unknown = [key for key in keys if key not in self._known]
        if unknown:
            self._look_up(connection, unknown)
        new = [
            found for found in make if found.key not in self._known and not isinstance(found.message, wire.Heartbeat)
        ]
        if new:
            make_runs(connection, new)
            self._look_up(connection, [arrival.key for arrival in new])
        return {key: self._known[key] for key in keys if key in self._known}

    def _look_up(self, connection: Connection, keys: Sequence[RunKey]) -> None:
        if len(self._known) > MAX_KNOWN:
            self.forget()
        table, given = tables.run.c, unnest_rows(tables.run, ("project", "name")).subquery()
        same = (table.project == given.c.project) & (table.name == given.c.name)
        found = select(table.id, table.project, table.name).join_from(tables.run, given, same)
        names = {"project": [key.project for key in keys], "name": [key.run for key in keys]}
        for row in connection.execute(found, names):
            self._known[RunKey(row.project, row.name)] = row.id

    def _read(self, connection: Connection, ids: dict[RunKey, int], *, ranks: Collection[int]) -> None:
        given = {"ids": list(ids.values()), "ranks": list(ranks)}
        entries = entries_of(starmap(_Spoken, _SENT.rows(connection, given)))
        if entries.keys() != ids.keys():
            raise RetryTransaction("a run of the group was renamed or deleted")
        self._directory.renew(entries)
