"""Write the parquet files of a lake's tables, and replace them: merged in order, or without the rows of some runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import CommitProperties, Transaction
from deltalake.transaction import AddAction, RemoveAction

from trmon.store.archive.table_files import has_repeats
from trmon.store.database.sqlite import sync_path
from trmon.store.lake.delta_schema import PARTITIONS, LakeTable
from trmon.store.lake.delta_tables import LogEntry, OpenTable, TableFolder, files_with, log_entries

FILE_BYTES = 128 << 20


def write_files(pieces: Iterable[Any], opened: OpenTable, *, is_change: bool = True) -> list[Any]:
    """Write rows to new files and return how the log is to name them.

    Args: pieces: record batches, each of one project and month, in the order of project, run and attempt; is_change:
    False for rows that are in the table already.
    """
    added: list[Any] = []
    file: _OpenFile | None = None
    for piece in pieces:
        partition = {name: piece.column(name)[0].as_py() for name in PARTITIONS}
        if file is not None and (file.partition != partition or file.n_bytes >= FILE_BYTES):
            added.append(file.close(is_change=is_change))
            file = None
        if file is None:
            file = _OpenFile(opened.table, opened.folder, partition)
        file.write(piece)
    if file is not None:
        added.append(file.close(is_change=is_change))
    return added


class _OpenFile:
    """A file that is being written: rows wait until they fill a row group."""

    def __init__(self, table: LakeTable, folder: TableFolder, partition: dict[str, str]) -> None:
        self.partition = partition
        self._table = table
        self._folder = folder
        self._schema = pa.schema([field for field in table.schema if field.name not in PARTITIONS])
        where = "/".join(f"{name}={value}" for name, value in partition.items())
        self._name = f"{where}/part-{uuid4()}.parquet"
        if folder.is_local:
            folder.filesystem.create_dir(folder.file(where), recursive=True)
        self._stream = folder.filesystem.open_output_stream(folder.file(self._name))
        repeating = [field.name for field in self._schema if has_repeats(field.type)]
        self._writer = pq.ParquetWriter(
            self._stream, self._schema, compression="zstd", use_dictionary=repeating, write_page_checksum=True
        )
        self._waiting: list[Any] = []
        self._waiting_rows = self._waiting_bytes = self._n_rows = 0
        self._least: dict[str, Any] = {}
        self._most: dict[str, Any] = {}
        self._nulls = dict.fromkeys(table.pruning_columns, 0)

    @property
    def n_bytes(self) -> int:
        """The bytes written so far."""
        return int(self._stream.tell())

    def write(self, piece: Any) -> None:
        """Add the rows of a record batch."""
        limit = self._table.group_rows
        while piece.num_rows:
            part = piece.slice(0, limit - self._waiting_rows)
            piece = piece.slice(part.num_rows)
            for name in self._nulls:
                column = part.column(name)
                self._nulls[name] += column.null_count
                bounds = pc.min_max(column).as_py()
                if bounds["min"] is not None:
                    self._least[name] = min(bounds["min"], self._least.get(name, bounds["min"]))
                    self._most[name] = max(bounds["max"], self._most.get(name, bounds["max"]))
            self._waiting.append(part.select(self._schema.names))
            self._waiting_rows += part.num_rows
            self._waiting_bytes += part.nbytes
            if self._waiting_rows >= limit or self._waiting_bytes >= self._table.group_bytes:
                self._write_group()

    def close(self, *, is_change: bool) -> Any:
        """Write what waits, make the file durable, and return its entry for the log."""
        self._write_group()
        self._writer.close()
        self._stream.close()
        path = self._folder.file(self._name)
        if self._folder.is_local:
            sync_path(path)
            sync_path(Path(path).parent)
        [info] = self._folder.filesystem.get_file_info([path])
        stats = {
            "numRecords": self._n_rows,
            "minValues": self._least,
            "maxValues": self._most,
            "nullCount": self._nulls,
        }
        made_at = int(time.time() * 1000)
        return AddAction(self._name, info.size, self.partition, made_at, is_change, json.dumps(stats))

    def _write_group(self) -> None:
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting, schema=self._schema).combine_chunks()
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._n_rows += rows.num_rows
            self._waiting.clear()
            self._waiting_rows = self._waiting_bytes = 0


PIECE_ROWS = 1024
SMALL_FILE_BYTES = FILE_BYTES // 2
REWRITE_APP_ID = "trmon/rewrite"


def delete_runs_from(opened: OpenTable, *, database_id: str, run_ids: Sequence[int]) -> None:
    """Delete the rows of runs with one commit a run that has any; the old files stay until the next vacuum."""
    for run_id in run_ids:
        is_run = (pc.field("run_id") == run_id) & (pc.field("database_id") == database_id)
        _delete_rows(opened, files_with(opened.delta, "run_id", run_id), is_run)


def delete_batches_after(opened: OpenTable, *, database_id: str, batch_id: int) -> None:
    """Delete the rows of a database's later lake batches with one commit."""
    is_later = (pc.field("lake_batch_id") > batch_id) & (pc.field("database_id") == database_id)
    entries = [entry for entry in log_entries(opened.delta) if entry["max.lake_batch_id"] > batch_id]
    _delete_rows(opened, entries, is_later)


def compact_partitions(opened: OpenTable, *, before_month: str) -> int:
    """Merge the small files of each partition of past months, and return the number of files that were merged.

    Rows stay in the order of run and attempt; those of one attempt in the order of its lake batches.
    """
    partitions: dict[tuple[str, ...], list[LogEntry]] = {}
    for entry in log_entries(opened.delta):
        if entry["partition.month"] < before_month and entry["size_bytes"] < SMALL_FILE_BYTES:
            partitions.setdefault(tuple(entry[f"partition.{name}"] for name in PARTITIONS), []).append(entry)
    n_files = 0
    for entries in partitions.values():
        if len(entries) > 1:
            merged = _merged(opened, sorted(entries, key=lambda entry: entry["min.lake_batch_id"]))
            _replace(opened, entries, write_files(merged, opened, is_change=False), is_change=False)
            n_files += len(entries)
    return n_files


def _delete_rows(opened: OpenTable, entries: Sequence[LogEntry], is_deleted: Any) -> None:
    with_some = [entry for entry in entries if opened.folder.dataset([entry["path"]]).count_rows(filter=is_deleted)]
    if with_some:
        kept = (piece for entry in with_some for piece in _rows(opened, entry, ~is_deleted))
        _replace(opened, with_some, write_files(kept, opened), is_change=True)


def _merged(opened: OpenTable, entries: Sequence[LogEntry]) -> Iterator[Any]:
    places: dict[tuple[int, str, int], list[LogEntry]] = {}
    for entry in entries:
        names = ["run_id", "database_id", "attempt_id"]
        keys: set[tuple[int, str, int]] = set()
        for piece in opened.folder.dataset([entry["path"]]).scanner(columns=names).to_batches():
            distinct = pa.Table.from_batches([piece]).group_by(names).aggregate([])
            keys.update(tuple(row[name] for name in names) for row in distinct.to_pylist())
        for key in keys:
            places.setdefault(key, []).append(entry)
    for key in sorted(places):
        run_id, database_id, attempt_id = key
        is_attempt = (
            (pc.field("run_id") == run_id)
            & (pc.field("attempt_id") == attempt_id)
            & (pc.field("database_id") == database_id)
        )
        for entry in places[key]:
            yield from _rows(opened, entry, is_attempt)


def _rows(opened: OpenTable, entry: LogEntry, wanted: Any) -> Iterator[Any]:
    """Yield the wanted rows of a file, with its partition as columns; a column that it lacks is null."""
    scanner = opened.folder.dataset([entry["path"]]).scanner(filter=wanted, batch_size=PIECE_ROWS)
    schema = opened.table.schema
    for piece in scanner.to_batches():
        if piece.num_rows:
            known = {name: piece.column(name) for name in piece.schema.names}
            for name in PARTITIONS:
                known[name] = pa.repeat(pa.scalar(entry[f"partition.{name}"]), piece.num_rows)
            columns = [
                known[field.name].cast(field.type) if field.name in known else pa.nulls(piece.num_rows, field.type)
                for field in schema
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _replace(opened: OpenTable, entries: Sequence[LogEntry], added: Sequence[Any], *, is_change: bool) -> None:
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
    commit_files(opened, [*removed, *added], app_id=REWRITE_APP_ID, version=opened.delta.version())
    opened.delta.update_incremental()


def commit_files(opened: OpenTable, actions: Sequence[Any], *, app_id: str, version: int) -> None:
    """Add and remove files with one commit, which fails if another commit of the same id came before it."""
    opened.delta.create_write_transaction(
        list(actions),
        "append",
        opened.table.schema,
        partition_by=list(PARTITIONS),
        commit_properties=CommitProperties(app_transactions=[Transaction(app_id, version)]),
    )
