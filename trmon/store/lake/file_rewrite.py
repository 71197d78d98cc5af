"""Replace files of a table by new ones with the same rows, merged in order or without those of some runs."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import RemoveAction

from trmon.store.lake.lake_files import FILE_BYTES, write_files
from trmon.store.lake.lake_tables import PARTITIONS, LakeTable
from trmon.store.lake.log_entries import LogEntry, files_with, log_entries
from trmon.store.lake.table_folder import TableFolder

PIECE_ROWS = 1024
SMALL_FILE_BYTES = FILE_BYTES // 2
REWRITE_APP_ID = "trmon/rewrite"


def delete_runs_from(
    delta_table: DeltaTable, table: LakeTable, folder: TableFolder, *, database_id: str, run_ids: Sequence[int]
) -> int:
    """Delete the rows of runs with one commit a run that has any, and return the number of files that were rewritten.

    The old files stay until the next vacuum.
    """
    n_files = 0
    for run_id in run_ids:
        is_run = (pc.field("run_id") == run_id) & (pc.field("database_id") == database_id)
        n_files += _delete_rows(delta_table, table, folder, files_with(delta_table, {"run_id": run_id}), is_run)
    return n_files


def delete_batches_after(
    delta_table: DeltaTable, table: LakeTable, folder: TableFolder, *, database_id: str, batch_id: int
) -> int:
    """Delete the rows of a database's later lake batches with one commit, and return the number of rewritten files."""
    is_later = (pc.field("lake_batch_id") > batch_id) & (pc.field("database_id") == database_id)
    entries = [entry for entry in log_entries(delta_table) if entry["max.lake_batch_id"] > batch_id]
    return _delete_rows(delta_table, table, folder, entries, is_later)


def compact_partitions(delta_table: DeltaTable, table: LakeTable, folder: TableFolder, *, before_month: str) -> int:
    """Merge the small files of each partition of past months, and return the number of files that were merged.

    Rows stay in the order of run and attempt; those of one attempt in the order of its lake batches.
    """
    partitions: dict[tuple[str, ...], list[LogEntry]] = {}
    for entry in log_entries(delta_table):
        if entry["partition.month"] < before_month and entry["size_bytes"] < SMALL_FILE_BYTES:
            partitions.setdefault(tuple(entry[f"partition.{name}"] for name in PARTITIONS), []).append(entry)
    n_files = 0
    for entries in partitions.values():
        if len(entries) > 1:
            merged = _merged(table, folder, sorted(entries, key=lambda entry: entry["min.lake_batch_id"]))
            _replace(delta_table, table, entries, write_files(merged, table, folder, is_change=False), is_change=False)
            n_files += len(entries)
            delta_table.update_incremental()
    return n_files


def _delete_rows(
    delta_table: DeltaTable, table: LakeTable, folder: TableFolder, entries: Sequence[LogEntry], is_deleted: Any
) -> int:
    with_some = [entry for entry in entries if folder.dataset([entry["path"]]).count_rows(filter=is_deleted)]
    if with_some:
        kept = (piece for entry in with_some for piece in _rows(table, folder, entry, ~is_deleted))
        _replace(delta_table, table, with_some, write_files(kept, table, folder), is_change=True)
        delta_table.update_incremental()
    return len(with_some)


def _merged(table: LakeTable, folder: TableFolder, entries: Sequence[LogEntry]) -> Iterator[Any]:
    places: dict[tuple[int, str, int], list[LogEntry]] = {}
    for entry in entries:
        for key in _attempts(folder.dataset([entry["path"]])):
            places.setdefault(key, []).append(entry)
    for key in sorted(places):
        run_id, database_id, attempt_id = key
        is_attempt = (
            (pc.field("run_id") == run_id)
            & (pc.field("attempt_id") == attempt_id)
            & (pc.field("database_id") == database_id)
        )
        for entry in places[key]:
            yield from _rows(table, folder, entry, is_attempt)


def _attempts(dataset: Any) -> Collection[tuple[int, str, int]]:
    names = ["run_id", "database_id", "attempt_id"]
    keys: set[tuple[int, str, int]] = set()
    for piece in dataset.scanner(columns=names).to_batches():
        distinct = pa.Table.from_batches([piece]).group_by(names).aggregate([])
        keys.update(tuple(row[name] for name in names) for row in distinct.to_pylist())
    return keys


def _rows(table: LakeTable, folder: TableFolder, entry: LogEntry, wanted: Any) -> Iterator[Any]:
    """Yield the wanted rows of a file, with its partition as columns; a column that it lacks is null."""
    scanner = folder.dataset([entry["path"]]).scanner(filter=wanted, batch_size=PIECE_ROWS)
    for piece in scanner.to_batches():
        if piece.num_rows:
            known = {name: piece.column(name) for name in piece.schema.names}
            for name in PARTITIONS:
                known[name] = pa.repeat(pa.scalar(entry[f"partition.{name}"]), piece.num_rows)
            columns = [
                known[field.name].cast(field.type) if field.name in known else pa.nulls(piece.num_rows, field.type)
                for field in table.schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _replace(
    delta_table: DeltaTable, table: LakeTable, entries: Sequence[LogEntry], added: Sequence[Any], *, is_change: bool
) -> None:
    """Commit new files in place of old ones; it fails if another process replaced one of them meanwhile."""
    now = int(time.time() * 1000)
    removed = [
        RemoveAction(
            entry["path"],
            is_change,
            now,
            size=entry["size_bytes"],
            partition_values={name: entry[f"partition.{name}"] for name in PARTITIONS},
        )
        for entry in entries
    ]
    # Of two rewrites of one version, of whichever process or database, the later fails: its rows would be doubled.
    rewrite = Transaction(REWRITE_APP_ID, delta_table.version())
    delta_table.create_write_transaction(
        [*removed, *added],
        "append",
        table.schema,
        partition_by=list(PARTITIONS),
        commit_properties=CommitProperties(app_transactions=[rewrite]),
    )
