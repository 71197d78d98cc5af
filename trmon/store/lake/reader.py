"""Reads the tables of a lake, which are opened when they are first read, within the limits of `LakeAccess`.

The list of a table's files is kept, and read again once the database knows a newer lake batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow import ArrowException

from trmon.domain.errors import Damaged
from trmon.store.lake.delta_schema import LAKE_ATTEMPTS, LakeTable
from trmon.store.lake.delta_tables import LogEntry, log_entries, matching, table_folder_of
from trmon.store.lake.location import LakeAccess, LakeLocation, brief_error
from trmon.store.lake.row_groups import BoundedCache, Filters, RowGroups
from trmon.store.rows.batches import BatchSelection, StepUpdates


@dataclass(frozen=True, slots=True, eq=False)
class AttemptIndex:
    """The steps, updates (-1: the whole rollout batch) and ordinals of an attempt, int64 [batches], by step."""

    steps: Any
    updates: Any
    ordinals: Any

    @classmethod
    def of(cls, *, steps: Any, updates: Any, ordinals: Any) -> AttemptIndex:
        """Return the index of batches in any order."""
        order = np.lexsort((updates, steps))
        return cls(steps[order], updates[order], ordinals[order])

    @property
    def n_bytes(self) -> int:
        """Its size in memory."""
        return int(self.steps.nbytes + self.updates.nbytes + self.ordinals.nbytes)

    def newest_steps(self, *, from_step: int | None, to_step: int | None, limit: int) -> list[StepUpdates]:
        """Return the newest steps in a range, both ends included, newest first."""
        first = 0 if from_step is None else np.searchsorted(self.steps, from_step, "left")
        last = len(self.steps) if to_step is None else np.searchsorted(self.steps, to_step, "right")
        steps, starts = np.unique(self.steps[first:last], return_index=True)
        ends = np.append(starts[1:], max(0, last - first))[: len(starts)] - 1
        newest = slice(max(0, len(steps) - limit), None)
        updates = self.updates[first:last]
        found = zip(
            steps[newest].tolist(),
            updates[starts[newest]].tolist(),
            updates[ends[newest]].tolist(),
            strict=True,
        )
        return [StepUpdates(step, _update(least), _update(most)) for step, least, most in found][::-1]

    def selected(self, selection: BatchSelection) -> Any:
        """Return the places of the batches of a selection, in its order."""
        conditions = selection.conditions(step=self.steps, ordinal=self.ordinals)
        places = np.flatnonzero(np.logical_and.reduce([np.ones(len(self.steps), bool), *conditions]))
        places = places[np.argsort(self.ordinals[places])]
        return (places[::-1] if selection.newest_first else places)[: selection.limit]


def _update(stored: int) -> int | None:
    return None if stored < 0 else stored


@dataclass(frozen=True, slots=True)
class _TableFiles:
    """The files of one version of a table, as its log names them."""

    schema: Any
    entries: list[LogEntry]


class TableReader:
    """Reads one table; may be used from any thread."""

    def __init__(self, location: LakeLocation, table: LakeTable, *, groups: RowGroups) -> None:
        self._uri = location.table_uri(table.name)
        self._options = location.storage_options
        self._folder = table_folder_of(location, table)
        self._groups = groups
        self._lock = Lock()
        self._table: DeltaTable | None = None
        self._files: _TableFiles | None = None
        self._lake_batch = 0

    def read(self, columns: Sequence[str], filters: Filters, *, lake_batch: int) -> Any:
        """Return the rows that match as an Arrow table with these columns and those of the filters, in no order.

        Args: lake_batch: the newest one that the database knows; the table is read as it was then, or later.
        Errors: TableNotFoundError; Damaged if only a file cannot be read; DeltaError, OSError for an unreachable lake.
        """
        wanted = list(dict.fromkeys((*columns, *(one.column for one in filters))))
        files = self.open(lake_batch)
        try:
            return self._read(files, wanted, filters)
        except OSError:
            # Perhaps the file was compacted or rewritten, and then removed.
            files = self.open(lake_batch, unless=files)
        try:
            return self._read(files, wanted, filters)
        except OSError as error:
            if DeltaTable.is_deltatable(self._uri, self._options):
                raise Damaged(f"a file of the lake's table {self._uri} cannot be read: {brief_error(error)}") from error
            raise

    def _read(self, files: _TableFiles, columns: Sequence[str], filters: Filters) -> Any:
        nothing = pa.schema([files.schema.field(name) for name in columns]).empty_table()
        parts = [
            part
            for entry in matching(files.entries, filters)
            for part in self._groups.read(
                self._folder.filesystem,
                self._folder.file(entry["path"]),
                key=f"{self._uri}/{entry['path']}",
                columns=columns,
                filters=filters,
            )
        ]
        # Older files may lack a column.
        return pa.concat_tables([nothing, *parts], promote_options="permissive")

    def open(self, lake_batch: int, *, unless: _TableFiles | None = None) -> _TableFiles:
        """Return the files as of a lake batch, or later; not those of `unless`. Errors: as of `read`."""
        with self._lock:
            if self._table is None:
                self._table = DeltaTable(self._uri, storage_options=self._options)
                self._files = None
            elif self._lake_batch < lake_batch or self._files is unless:
                self._table.update_incremental()
                self._files = None
            if self._files is None:
                self._files = _TableFiles(pa.schema(self._table.schema().to_arrow()), log_entries(self._table))
                self._lake_batch = lake_batch
            return self._files


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
