"""`trmon lake`: move attempts of ended runs to the lake, and see what has moved."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.filesize import decimal

from trmon.cli.command import DataDir, plain_errors, read_settings
from trmon.cli.database import open_store
from trmon.domain.errors import NotReady
from trmon.domain.health.judgement import wall_time

lake = typer.Typer(no_args_is_help=True, help="Move attempts of ended runs to the lake, and see what has moved.")


@lake.command("move")
def lake_move_command(
    idle: Annotated[
        float | None,
        typer.Option(min=0, help="Seconds that a run must have been idle, instead of TRMON_LAKE_AFTER_SECONDS."),
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Move what can move now and delete it from the database; a running service may do the same meanwhile."""
    with plain_errors(), open_store(data_dir) as store:
        settings = read_settings(data_dir=data_dir)
        after_seconds = settings.lake_after_seconds if idle is None else idle
        done = store.lake(_url(settings.lake_url)).run_pass(now=time.time(), after_seconds=after_seconds)
        for batch in done.batches:
            typer.echo(
                f"batch {batch.id}: {len(batch.members)} attempts, {batch.n_reports} reports, {decimal(batch.n_bytes)}"
            )
        typer.echo(
            f"{done.deleted_rows} rows deleted from the database, {done.deleted_runs} deleted runs from the lake, "
            f"{done.merged_files} files merged"
        )


@lake.command("status")
def lake_status_command(data_dir: DataDir = None) -> None:
    """Print what has moved and what waits, from the database alone; `trmon doctor` asks the lake."""
    with plain_errors(), open_store(data_dir) as store:
        settings = read_settings(data_dir=data_dir)
        found = store.lake_batches.status(now=time.time(), after_seconds=settings.lake_after_seconds)
        newest = "never" if found.moved_at is None else wall_time(found.moved_at)
        typer.echo(f"lake:     {settings.lake_url or 'none; set TRMON_LAKE_URL'}")
        typer.echo(
            f"moved:    {found.moved_attempts} attempts in {found.moved_batches} batches, "
            f"{decimal(found.moved_bytes)} of reports, newest {newest}"
        )
        idle_later = found.ended_attempts - found.due_attempts
        typer.echo(
            f"waiting:  {found.due_attempts} attempts due, {idle_later} ended and not idle for long enough, "
            f"{found.late_attempts} with late messages"
        )
        if found.planned_batch is not None:
            typer.echo(f"begun:    batch {found.planned_batch}; the next pass completes it")
        if found.pending_deletions:
            typer.echo(f"deleting: {found.pending_deletions} runs")


@lake.command("rollback")
def lake_rollback_command(
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False, data_dir: DataDir = None
) -> None:
    """Delete from the lake what moved after the backup that this database was restored from, after asking."""
    with plain_errors(), open_store(data_dir) as store:
        mover = store.lake(_url(read_settings(data_dir=data_dir).lake_url))
        if not yes:
            typer.confirm("Delete what the lake has and this restored database does not know?", abort=True)
        typer.echo(f"{mover.roll_back(now=time.time())} batches rolled back")


def _url(url: str | None) -> str:
    if url is None:
        raise NotReady("TRMON_LAKE_URL is not set, so there is no lake to move to")
    return url
