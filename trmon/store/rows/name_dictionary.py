"""Sets of names that many rows share, and the values that go with them."""

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
    """The rows of `name_set`, remembered; any thread may read, only the writer's may add."""

    def __init__(self) -> None:
        self._names: dict[int, Names] = {}
        self._ids: dict[Names, int] = {}

    def forget(self) -> None:
        """Drop what may not have been committed."""
        self._ids.clear()
        self._names.clear()

    def id_of(self, connection: Connection, names: Names) -> int:
        """Return the id of a set of names, adding it if it is new."""
        if names not in self._ids:
            text = msgspec.json.encode(names).decode()
            advisory_locks.lock_exclusively(connection, advisory_locks.AdvisoryLock.NAMES)
            insert_new(connection, tables.name_set, rows=[{"names": text}])
            found = select(tables.name_set.c.id).where(tables.name_set.c.names == text)
            self._ids[names] = connection.scalars(found).one()
        return self._ids[names]

    def read(self, connection: Connection, ids: Iterable[int]) -> dict[int, Names]:
        """Return the names of ids."""
        wanted = set(ids)
        # What is remembered may be dropped by the writer's thread at any moment.
        names = {id_: known for id_ in wanted if (known := self._names.get(id_)) is not None}
        if missing := wanted - names.keys():
            found = select(tables.name_set).where(tables.name_set.c.id.in_(missing))
            for row in connection.execute(found):
                names[row.id] = self._names[row.id] = msgspec.json.decode(row.names, type=Names)
        return names


def pack_values(values: Mapping[str, float]) -> bytes:
    """Return values as little-endian float64, in their order; NaN and inf survive."""
    return np.array(list(values.values()), "<f8").tobytes()


def unpack_values(names: Names, data: bytes) -> dict[str, float]:
    """Return what was packed under the names."""
    return dict(zip(names, np.frombuffer(data, "<f8").tolist(), strict=True))
