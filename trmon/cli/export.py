"""`trmon export`: write a project as parquet."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from trmon.cli.command import DataDir, plain_errors
from trmon.cli.database import open_store
from trmon.domain.identity import checked_name

SHOWN = ("batches", "reports", "sequences", "alerts")


def export(
    project: Annotated[str, typer.Argument(help="The project to export.")],
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="An empty folder, or one to create.")],
    data_dir: DataDir = None,
) -> None:
    """Write a project as partitioned parquet, for DuckDB and `trmon import`, while the service runs."""
    with plain_errors(), open_store(data_dir) as store:
        began_at = time.monotonic()
        written = store.archives.export_project(checked_name(project, field="PROJECT"), directory, now=time.time())
        seconds = time.monotonic() - began_at
        rows = ", ".join(f"{written.rows.get(table, 0)} {table}" for table in SHOWN)
        typer.echo(f"{directory}: {len(written.runs)} runs, {rows}, in {seconds:.1f} s")
