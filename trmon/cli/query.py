"""`trmon query`: SQL over the database and the lake."""

from __future__ import annotations

import time
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import typer

from trmon.cli.command import DataDir, console, plain_errors, read_settings
from trmon.cli.database import open_store
from trmon.domain.errors import InvalidInput


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
    from trmon.terminal import query_output

    if format_ is QueryFormat.PARQUET:
        if output is None:
            raise InvalidInput("--format", "parquet needs --output FILE")
        query_output.write_parquet_result(result, output)
    elif format_ is QueryFormat.TABLE:
        if output is not None:
            raise InvalidInput("--output", "needs --format csv, json or parquet")
        query_output.print_result(result, console())
    else:
        write = query_output.write_csv_result if format_ is QueryFormat.CSV else query_output.write_json_result
        if output is None:
            write(result, typer.get_text_stream("stdout"))
        else:
            with output.open("w", newline="", encoding="utf-8") as file:
                write(result, file)
