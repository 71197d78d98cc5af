"""Store each set of signal names once, and pack the values of a row in the order of its names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
from sqlalchemy import Connection, select

from trmon.store.database import advisory_locks
from trmon.store.database.upsert import insert_new
from trmon.store.schema import tables

Names = tuple[str, ...]


class NameDictionary:
    """A cache of the table `name_set`; any thread may read, only the writer's thread may add names."""

    def __init__(self) -> None:
        self._names: dict[int, Names] = {}
        self._ids: dict[Names, int] = {}

    def forget(self) -> None:
        """Clear the cache after a rollback, which may have removed rows that it holds."""
        self._ids.clear()
        self._names.clear()

    def id_of(self, connection: Connection, names: Names) -> int:
        """Return the id of a set of names; a new set is inserted."""
        if names not in self._ids:
            text = msgspec.json.encode(names).decode()
            advisory_locks.lock_exclusively(connection, advisory_locks.AdvisoryLock.NAMES)
            insert_new(connection, tables.name_set, rows=[{"names": text}])
            query = select(tables.name_set.c.id).where(tables.name_set.c.names == text)
            self._ids[names] = connection.scalars(query).one()
        return self._ids[names]

    def read(self, connection: Connection, ids: Iterable[int]) -> dict[int, Names]:
        """Return the sets of names by id."""
        wanted = set(ids)
        # The writer's thread may clear the cache at any moment: each id is looked up once.
        names = {id_: cached for id_ in wanted if (cached := self._names.get(id_)) is not None}
        if missing := wanted - names.keys():
            query = select(tables.name_set).where(tables.name_set.c.id.in_(missing))
            for row in connection.execute(query):
                names[row.id] = self._names[row.id] = msgspec.json.decode(row.names, type=Names)
        return names


def pack_values(values: Mapping[str, float]) -> bytes:
    """Return values as little-endian float64 in order, NaN and infinity included."""
    return np.array(list(values.values()), "<f8").tobytes()


def unpack_values(names: Names, data: bytes) -> dict[str, float]:
    """Return packed values by name."""
    return dict(zip(names, np.frombuffer(data, "<f8").tolist(), strict=True))
