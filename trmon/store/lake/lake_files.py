"""Write the parquet files of a lake's tables, in the order of the rows that come, and describe them for the log.

The writer of Delta reorders rows; here their order stays, so that a row group holds one run, one step or one signal.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from trmon.store.archive.table_files import has_repeats
from trmon.store.lake.lake_tables import PARTITIONS, LakeTable
from trmon.store.lake.table_folder import TableFolder

FILE_BYTES = 128 << 20


def write_files(pieces: Iterable[Any], table: LakeTable, folder: TableFolder, *, is_change: bool = True) -> list[Any]:
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
            file = _OpenFile(table, folder, partition)
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
            self._note_bounds(part)
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
            sync_file(path)
            sync_file(str(Path(path).parent))
        [info] = self._folder.filesystem.get_file_info([path])
        stats = {
            "numRecords": self._n_rows,
            "minValues": self._least,
            "maxValues": self._most,
            "nullCount": self._nulls,
        }
        made_at = int(time.time() * 1000)
        return AddAction(self._name, info.size, self.partition, made_at, is_change, json.dumps(stats))

    def _note_bounds(self, piece: Any) -> None:
        for name in self._nulls:
            column = piece.column(name)
            self._nulls[name] += column.null_count
            bounds = pc.min_max(column).as_py()
            if bounds["min"] is not None:
                self._least[name] = min(bounds["min"], self._least.get(name, bounds["min"]))
                self._most[name] = max(bounds["max"], self._most.get(name, bounds["max"]))

    def _write_group(self) -> None:
        if self._waiting:
            rows = pa.Table.from_batches(self._waiting, schema=self._schema).combine_chunks()
            self._writer.write_table(rows, row_group_size=rows.num_rows)
            self._n_rows += rows.num_rows
            self._waiting.clear()
            self._waiting_rows = self._waiting_bytes = 0


def sync_file(path: str) -> None:
    """Have a local file, or the names in a local folder, survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
