"""Reads the tables of a lake, which are opened when they are first read, within the limits of `LakeAccess`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any

from deltalake.exceptions import TableNotFoundError
from pyarrow import ArrowException

from trmon.domain.model.errors import Damaged
from trmon.store.lake.attempt_index import AttemptIndex
from trmon.store.lake.bounded_cache import BoundedCache
from trmon.store.lake.column_filter import Filters
from trmon.store.lake.lake_access import LakeAccess, brief_error
from trmon.store.lake.lake_location import LakeLocation
from trmon.store.lake.lake_tables import LAKE_ATTEMPTS, LakeTable
from trmon.store.lake.row_groups import RowGroups
from trmon.store.lake.table_reader import TableReader

INDEX_BYTES = 32 << 20
"""How many bytes of attempts' indexes stay in memory: an attempt of 100,000 steps has 2.4 MB."""


class LakeReader:
    """Reads the tables of a lake; may be used from any thread."""

    def __init__(self, location: LakeLocation) -> None:
        self._location = location
        self._access = LakeAccess(location.url)
        self._groups = RowGroups()
        self._lock = Lock()
        self._tables: dict[str, TableReader] = {}
        self._indexes: BoundedCache[AttemptIndex] = BoundedCache(INDEX_BYTES, size_of=lambda index: index.n_bytes)

    def read(self, table: LakeTable, columns: Sequence[str], filters: Filters, *, lake_batch: int) -> Any:
        """Return the rows of a table that match, as `TableReader.read` does; none if it has never had any.

        Errors: LakeUnavailable, Overloaded, Damaged.
        """
        with self._access.read():
            try:
                return self._reader(table).read(columns, filters, lake_batch=lake_batch)
            except TableNotFoundError:
                # A table is made for its first row; this one has a row of every attempt.
                self._reader(LAKE_ATTEMPTS).open(lake_batch)
                return table.schema.empty_table()
            except ArrowException as error:
                raise Damaged(f"the lake's table {table.name} cannot be read: {brief_error(error)}") from error

    def index(self, key: tuple[str, int, int], make: Callable[[], AttemptIndex]) -> AttemptIndex:
        """Return the index of an attempt, made if it is not in memory. Args: key: database, attempt, lake batch."""
        return self._indexes.get(key, make)

    def _reader(self, table: LakeTable) -> TableReader:
        with self._lock:
            if table.name not in self._tables:
                self._tables[table.name] = TableReader(self._location, table, groups=self._groups)
            return self._tables[table.name]
