"""`trmon query`: SQL over the database and the lake."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, TextIO

import msgspec
import typer
from rich.console import Console

from trmon.cli.command import DataDir, console, plain_errors, read_settings
from trmon.cli.database import open_store
from trmon.domain.errors import InvalidInput
from trmon.terminal.text import print_rows


class QueryFormat(Enum):
    """How a result is written."""

    TABLE = "table"
    CSV = "csv"
    JSON = "json"
    PARQUET = "parquet"


def query(
    sql: Annotated[str | None, typer.Argument(metavar="[SQL]", help="One SELECT, in the SQL of DuckDB.")] = None,
    format_: Annotated[
        QueryFormat, typer.Option("--format", help="json is one object a line; parquet needs --output.")
    ] = QueryFormat.TABLE,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file to write.")] = None,
    memory: Annotated[str, typer.Option(help="Memory of the query; more goes to temporary files.")] = "2GB",
    data_dir: DataDir = None,
) -> None:
    """Run SQL over all runs, in the database and in the lake; without it, list the tables.

    The lake is that of TRMON_LAKE_URL. A query reads the listed tables and nothing else.
    """
    with plain_errors(), open_store(data_dir) as store:
        queries = store.queries(read_settings(data_dir=data_dir).lake_url)
        if sql is None:
            typer.echo(queries.describe())
            return
        with queries.run(sql, now=time.time(), memory=memory) as result:
            _write(result, format_, output)


def _write(result: Any, format_: QueryFormat, output: Path | None) -> None:
    if format_ is QueryFormat.PARQUET:
        if output is None:
            raise InvalidInput("--format", "parquet needs --output FILE")
        write_parquet_result(result, output)
    elif format_ is QueryFormat.TABLE:
        if output is not None:
            raise InvalidInput("--output", "needs --format csv, json or parquet")
        print_result(result, console())
    else:
        write = write_csv_result if format_ is QueryFormat.CSV else write_json_result
        if output is None:
            write(result, typer.get_text_stream("stdout"))
        else:
            with output.open("w", newline="", encoding="utf-8") as file:
                write(result, file)


MAX_ROWS = 200
"""Rows of a table on the terminal; the other formats have them all."""


def print_result(result: Any, console: Console) -> None:
    """Print the first rows. Args: result: a RecordBatchReader."""
    rows = [[_short(value) for value in row] for row in islice(_rows(result), MAX_ROWS + 1)]
    print_rows(console, result.schema.names, rows[:MAX_ROWS])
    if len(rows) > MAX_ROWS:
        console.print(f"only the first {MAX_ROWS} rows; --format csv, json or parquet has all")


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
