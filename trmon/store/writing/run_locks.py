"""Locks that keep each run's rows in order when several processes write to PostgreSQL."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import starmap

import msgspec
from sqlalchemy import ARRAY, BigInteger, Connection, any_, bindparam, func, select, tuple_

from trmon.domain.identity import RunKey
from trmon.store.database.engines import RetryTransaction
from trmon.store.database.pg_statement import LockSpace, PgStatement, lock_number, lock_numbers
from trmon.store.database.upsert import unnest_rows
from trmon.store.registry import ArrivedMessage, RunRegistry, entries_of, insert_runs, select_entries
from trmon.store.schema import tables
from trmon.store.writing.transaction import WriteItem
from trmon_client.core import wire

MAX_KNOWN = 100_000

_IDS = any_(bindparam("ids", type_=ARRAY(BigInteger)))
_RANKS = bindparam("ranks", type_=ARRAY(BigInteger))
_SENDERS = func.unnest(bindparam("senders", type_=ARRAY(BigInteger)), _RANKS).table_valued("run_id", "rank")
_SENT = tuple_(tables.run.c.id, tables.claim.c.rank).in_(select(_SENDERS.render_derived(name="sender")))
# The ranks alone let the primary key find the claims; the pairs leave out one run's claims of another run's ranks.
_ENTRIES = select_entries(tables.run.c.id == _IDS, claims=(tables.claim.c.rank == any_(_RANKS)) & _SENT)
"""The runs of a group, with the claims of the ranks that send messages in it."""
_SELECT_ENTRIES = PgStatement(_ENTRIES)
_EntryRow = msgspec.defstruct("_EntryRow", map(str, _ENTRIES.selected_columns.keys()))


class RunLocks:
    """Locks the runs of a group, and refreshes their entries in the registry.

    All runs of a group are locked before any of their rows gets an id, smallest lock number first, and stay locked
    until the group is visible. The rows of a run therefore become visible in the order of their ids, although
    transactions commit in any order, and no deadlock occurs. Messages and the other rows of a run have separate
    locks, so trainers do not wait for the run's worker.
    """

    def __init__(self, registry: RunRegistry) -> None:
        self._registry = registry
        self._known: dict[RunKey, int] = {}

    def forget(self) -> None:
        """Clear the cached ids."""
        self._known.clear()

    def acquire(self, connection: Connection, items: Sequence[WriteItem]) -> None:
        """Lock the runs of items. Errors: RetryTransaction if one of them was renamed or deleted meanwhile."""
        refs = [item.run for item in items]
        arrivals = [ref for ref in refs if isinstance(ref, ArrivedMessage)]
        messaged = self._ids(connection, {arrival.key for arrival in arrivals}, create=arrivals)
        edited = self._ids(connection, {ref for ref in refs if isinstance(ref, RunKey)})
        numbers = {lock_number(LockSpace.MESSAGES, id_) for id_ in {*messaged.values(), *edited.values()}}
        others = {*edited.values(), *(ref for ref in refs if isinstance(ref, int))}
        numbers |= {lock_number(LockSpace.ROWS, id_) for id_ in others}
        lock_numbers(connection, numbers)
        if messaged:
            senders = {(messaged[one.key], one.message.rank) for one in arrivals if one.key in messaged}
            given = {
                "ids": list(messaged.values()),
                "senders": [run_id for run_id, _ in senders],
                "ranks": [rank for _, rank in senders],
            }
            entries = entries_of(starmap(_EntryRow, _SELECT_ENTRIES.rows(connection, given)))
            if entries.keys() != messaged.keys():
                raise RetryTransaction("a run of the group was renamed or deleted")
            self._registry.replace(entries)

    def _ids(
        self, connection: Connection, keys: Collection[RunKey], *, create: Iterable[ArrivedMessage] = ()
    ) -> dict[RunKey, int]:
        """Return the ids of the runs that exist, after inserting those that begin with one of these messages."""
        unknown = [key for key in keys if key not in self._known]
        if unknown:
            self._look_up(connection, unknown)
        new = [
            found for found in create if found.key not in self._known and not isinstance(found.message, wire.Heartbeat)
        ]
        if new:
            insert_runs(connection, new)
            self._look_up(connection, [arrival.key for arrival in new])
        return {key: self._known[key] for key in keys if key in self._known}

    def _look_up(self, connection: Connection, keys: Sequence[RunKey]) -> None:
        if len(self._known) > MAX_KNOWN:
            self.forget()
        table, given = tables.run.c, unnest_rows(tables.run, ("project", "name")).subquery()
        is_given = (table.project == given.c.project) & (table.name == given.c.name)
        found = select(table.id, table.project, table.name).join_from(tables.run, given, is_given)
        names = {"project": [key.project for key in keys], "name": [key.run for key in keys]}
        for row in connection.execute(found, names):
            self._known[RunKey(row.project, row.name)] = row.id
