"""`trmon export` and `trmon import`: projects as parquet, out and in."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from trmon.cli.command import DataDir, plain_errors
from trmon.cli.database import open_store, operator
from trmon.domain.model.audit import AuditAction
from trmon.domain.model.identity import checked_name
from trmon.store.repositories.archives import ImportOutcome

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


def import_(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that `trmon export` wrote.")],
    project: Annotated[str | None, typer.Option(help="Another name for the project.")] = None,
    data_dir: DataDir = None,
) -> None:
    """Import what `trmon export` wrote: each run whole or not at all, never into another run; safe to repeat."""
    with plain_errors(), open_store(data_dir, making=True) as store:
        renamed = None if project is None else checked_name(project, field="--project")
        for run in store.archives.import_project(directory, project=renamed):
            if run.outcome is ImportOutcome.IMPORTED:
                store.audit.record(
                    operator(),
                    AuditAction.RUN_IMPORT,
                    at=time.time(),
                    target=str(run.key),
                    project=run.key.project,
                    after={"from": str(directory.resolve())},
                ).result()
            typer.echo(f"{run.key}: {run.outcome.value}")
