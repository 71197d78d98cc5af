"""Opens the Delta tables of a lake, and creates those that do not exist yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, Field
from deltalake.exceptions import DeltaError, TableNotFoundError

from trmon.domain.model.errors import NotReady
from trmon.store.lake.lake_access import brief_error
from trmon.store.lake.lake_location import LakeLocation
from trmon.store.lake.lake_tables import PARTITIONS, LakeTable
from trmon.store.lake.table_folder import table_folder_of


class DeltaTables:
    """The tables of one lake, kept open. A mover has its own: a writer relies on the version that it has checked."""

    def __init__(self, location: LakeLocation) -> None:
        self.location = location
        self._opened: dict[str, DeltaTable] = {}
        self._lock = Lock()

    def find(self, table: LakeTable) -> DeltaTable | None:
        """Return a table as it is now; None if it does not exist. Errors: NotReady if the lake cannot be read."""
        with self._lock, lake_errors(self.location):
            opened = self._opened.get(table.name)
            if opened is not None:
                opened.update_incremental()
                return opened
            try:
                opened = DeltaTable(self.location.table_uri(table.name), storage_options=self.location.storage_options)
            except TableNotFoundError:
                return None
            self._opened[table.name] = opened
            return opened

    def dataset(self, table: LakeTable) -> Any:
        """Return a table as a pyarrow dataset, which reads only what is asked of it; None if the table does not exist.

        Errors: NotReady.
        """
        found = self.find(table)
        if found is None:
            return None
        with lake_errors(self.location):
            return found.to_pyarrow_dataset(filesystem=table_folder_of(self.location, table).as_filesystem)

    def find_or_create(self, table: LakeTable) -> DeltaTable:
        """Return a table as it is now, with every column of this version; two processes may create it at once.

        Errors: NotReady.
        """
        if (found := self.find(table)) is not None:
            with lake_errors(self.location):
                _add_missing_columns(found, table)
            return found
        with lake_errors(self.location):
            if not self.location.is_remote:
                Path(self.location.url).mkdir(mode=0o700, parents=True, exist_ok=True)
            DeltaTable.create(
                self.location.table_uri(table.name),
                table.schema,
                mode="ignore",
                partition_by=list(PARTITIONS),
                name=table.name,
                configuration={"delta.dataSkippingStatsColumns": ",".join(table.pruning_columns)},
                storage_options=self.location.storage_options,
            )
        created = self.find(table)
        if created is None:
            raise NotReady(f"the table {table.name} was removed from {self.location.url} as it was created")
        return created


def _add_missing_columns(opened: DeltaTable, table: LakeTable) -> None:
    """Add the columns that an older trmon did not know; readers see null in its rows, and it can still append."""
    known = {field.name for field in opened.schema().fields}
    missing = [Field.from_arrow(field) for field in table.schema if field.name not in known]
    if missing:
        opened.alter.add_columns(missing)
        opened.update_incremental()


@contextmanager
def lake_errors(location: LakeLocation) -> Iterator[None]:
    """Raise NotReady, with the cause in brief, for an error of the lake."""
    try:
        yield
    except (DeltaError, pa.ArrowException, OSError) as error:
        raise NotReady(f"the lake {location.url} failed: {brief_error(error)}") from error
