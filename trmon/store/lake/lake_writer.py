"""Append the rows of a lake batch to each table with one commit, once however often it is repeated."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

from deltalake import CommitProperties, DeltaTable, Transaction

from trmon.store.lake.attempt_rows import AttemptRows
from trmon.store.lake.delta_tables import DeltaTables, lake_errors
from trmon.store.lake.lake_files import write_files
from trmon.store.lake.lake_member import LakeBatch
from trmon.store.lake.lake_tables import LAKE_TABLES, PARTITIONS, LakeTable
from trmon.store.lake.table_folder import table_folder_of


class LakeWriter:
    """Appends lake batches, table by table."""

    def __init__(self, delta_tables: DeltaTables, rows: AttemptRows) -> None:
        self._delta_tables = delta_tables
        self._rows = rows

    def append(self, batch: LakeBatch, *, at_point: Callable[[str], None] = lambda _: None) -> None:
        """Append the rows of a batch to every table that lacks them.

        Args: at_point: called with what has happened: the files of a table are written, or its commit is done.
        Errors: NotReady if the lake cannot be written; repeat the call.
        """
        for table in LAKE_TABLES:
            self._append_to(table, batch, at_point)

    def _append_to(self, table: LakeTable, batch: LakeBatch, at_point: Callable[[str], None]) -> None:
        found = self._delta_tables.find(table)
        if found is not None and _has_batch(found, batch):
            return
        pieces = self._rows.read(batch, table)
        first = next(pieces, None)
        if first is None:
            return
        # From here to the commit the table must not be refreshed: the commit fails if another mover has committed the
        # same batch since the version that is checked here, and only then none is doubled.
        delta_table = self._delta_tables.find_or_create(table)
        if _has_batch(delta_table, batch):
            return
        with lake_errors(self._delta_tables.location):
            folder = table_folder_of(self._delta_tables.location, table)
            added = write_files(chain([first], pieces), table, folder)
            at_point(f"{table.name} written")
            delta_table.create_write_transaction(
                added,
                "append",
                table.schema,
                partition_by=list(PARTITIONS),
                commit_properties=CommitProperties(app_transactions=[Transaction(batch.app_id, batch.id)]),
            )
        at_point(f"{table.name} committed")


def _has_batch(delta_table: DeltaTable, batch: LakeBatch) -> bool:
    return (delta_table.transaction_version(batch.app_id) or 0) >= batch.id
