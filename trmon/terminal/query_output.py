"""The result of a query as a table, CSV, JSON Lines or parquet, written batch by batch."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

MAX_ROWS = 200
"""Rows of a table on the terminal; the other formats have them all."""


def print_result(result: Any, console: Console) -> None:
    """Print the first rows. Args: result: a RecordBatchReader."""
    table = Table(*map(escape, result.schema.names), box=box.SIMPLE_HEAD, pad_edge=False)
    for row in _rows(result):
        if table.row_count == MAX_ROWS:
            console.print(table)
            console.print(f"only the first {MAX_ROWS} rows; --format csv, json or parquet has all")
            return
        table.add_row(*(escape(_short(value)) for value in row))
    console.print(table)


def write_csv_result(result: Any, out: TextIO) -> None:
    """Write a header and all rows; null is an empty cell, lists and maps are JSON."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(result.schema.names)
    for row in _rows(result):
        writer.writerow([_cell(value) for value in row])


def write_json_result(result: Any, out: TextIO) -> None:
    """Write an object a row; NaN is null, a map is an object."""
    names = result.schema.names
    documents = (dict(zip(names, row, strict=True)) for row in _rows(result))
    out.writelines(f"{msgspec.json.encode(document, enc_hook=str).decode()}\n" for document in documents)


def write_parquet_result(result: Any, path: Path) -> None:
    """Write a parquet file, which appears whole or not at all."""
    import pyarrow.parquet as pq  # an optional dependency

    partial = path.with_name(f".{path.name}.part")
    try:
        with pq.ParquetWriter(partial, result.schema, compression="zstd") as writer:
            for batch in result:
                writer.write_batch(batch)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _rows(result: Any) -> Iterator[tuple[Any, ...]]:
    for batch in result:
        columns = [column.to_pylist(maps_as_pydicts="lossy") for column in batch.columns]
        yield from zip(*columns, strict=True)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        return msgspec.json.encode(value, enc_hook=str).decode()
    return str(value)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else _cell(value)
