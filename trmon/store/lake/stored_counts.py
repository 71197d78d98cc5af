"""Count the rows of a lake batch's attempts in the lake and in the database, to compare them."""

from __future__ import annotations

from collections import Counter

import pyarrow.compute as pc
from deltalake import DeltaTable
from sqlalchemy import Connection, func, select

from trmon.store.lake.attempt_rows import belongs_to
from trmon.store.lake.lake_member import LakeBatch, LakeMember
from trmon.store.lake.lake_tables import (
    LAKE_ATTEMPTS,
    LAKE_BATCHES,
    LAKE_CHUNK_AXES,
    LAKE_DECISIONS,
    LAKE_NOTICES,
    LAKE_REPORTS,
    LAKE_SIGNAL_CHUNKS,
    LATE_TABLES,
    LakeTable,
)
from trmon.store.lake.log_entries import files_with
from trmon.store.lake.table_folder import TableFolder
from trmon.store.schema import tables

COUNTED_TABLES = (
    LAKE_REPORTS,
    LAKE_NOTICES,
    LAKE_BATCHES,
    LAKE_DECISIONS,
    LAKE_SIGNAL_CHUNKS,
    LAKE_CHUNK_AXES,
    LAKE_ATTEMPTS,
)
"""The tables whose rows cannot change once an attempt is sealed: those that retention deletes, and the attempts."""


def counts_in_database(connection: Connection, member: LakeMember, table: LakeTable) -> int:
    """Return the number of rows that a batch moves of a member."""
    if member.is_late and table not in LATE_TABLES:
        return 0
    if table is LAKE_ATTEMPTS:
        return 1
    source = tables.batch if table.archived is None else table.archived.table
    is_member = source.c.attempt_id == member.attempt_id if table.archived is None else belongs_to(member, table)
    return connection.scalars(select(func.count()).select_from(source).where(is_member)).one()


def counts_in_lake(delta_table: DeltaTable, folder: TableFolder, batch: LakeBatch) -> Counter[int]:
    """Return the number of rows of a batch by attempt, reading only the files that can have some."""
    entries = files_with(delta_table, {"lake_batch_id": batch.id})
    if not entries:
        return Counter()
    dataset = folder.dataset(entry["path"] for entry in entries)
    is_of_batch = (pc.field("lake_batch_id") == batch.id) & (pc.field("database_id") == batch.database_id)
    counts: Counter[int] = Counter()
    for piece in dataset.scanner(columns=["attempt_id"], filter=is_of_batch).to_batches():
        for entry in piece.column("attempt_id").value_counts().to_pylist():
            counts[entry["values"]] += entry["counts"]
    return counts
