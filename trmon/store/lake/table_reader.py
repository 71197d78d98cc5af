"""Reads one table of the lake; its list of files is kept, and read anew once the database knows a newer lake batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from trmon.domain.model.errors import Damaged
from trmon.store.lake.column_filter import Filters
from trmon.store.lake.lake_access import brief_error
from trmon.store.lake.lake_location import LakeLocation
from trmon.store.lake.lake_tables import LakeTable
from trmon.store.lake.row_groups import RowGroups
from trmon.store.lake.table_folder import table_folder_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _TableFiles:
    """The files of one version of a table, and the bounds of their columns."""

    schema: Any
    paths: tuple[str, ...]
    bounds: Mapping[str, tuple[Sequence[Any], Sequence[Any]]]

    def matching(self, filters: Filters) -> Iterator[str]:
        """Yield the files that may have rows that match."""
        known = [(one, *self.bounds[one.column]) for one in filters if one.column in self.bounds]
        for i, path in enumerate(self.paths):
            if all(one.may_match(smallest[i], largest[i]) for one, smallest, largest in known):
                yield path


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
            for path in files.matching(filters)
            for part in self._groups.read(
                self._folder.filesystem,
                self._folder.file(path),
                key=f"{self._uri}/{path}",
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
                self._files = self._list(self._table)
                self._lake_batch = lake_batch
            return self._files

    def _list(self, table: DeltaTable) -> _TableFiles:
        actions = pa.table(table.get_add_actions(flatten=True)).to_pydict()
        filterable = [name.removeprefix("min.") for name in actions if name.startswith("min.")]
        return _TableFiles(
            schema=pa.schema(table.schema().to_arrow()),
            paths=tuple(actions["path"]),
            bounds={name: (actions[f"min.{name}"], actions[f"max.{name}"]) for name in filterable},
        )
