"""`trmon migrate`: migrate the database."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Annotated

import typer

from trmon.cli.command import DataDir, plain_errors, read_settings
from trmon.cli.database import open_store, operator
from trmon.store.maintenance.restore import RestoredState, prepare_restored


def migrate(
    restored: Annotated[
        bool,
        typer.Option(
            "--restored",
            help="The database was restored to an earlier time: skip the ids given out since then, release all leases, "
            "and add a note to each open run. Stop all other processes first.",
        ),
    ] = False,
    data_dir: DataDir = None,
) -> None:
    """Migrate the database to this version; `serve` does it automatically."""
    with plain_errors():
        if restored:
            url = read_settings(data_dir=data_dir).store_url
            _print(prepare_restored(url, access=operator(), now=time.time()))
            return
        with open_store(data_dir, making=True):
            typer.echo("the database is up to date")


def _print(state: RestoredState) -> None:
    if state.newest_report_at is None:
        typer.echo("the restored database has no reports")
    else:
        newest = datetime.fromtimestamp(state.newest_report_at, timezone.utc)
        typer.echo(f"the newest report was received at {newest:%Y-%m-%d %H:%M:%S} UTC; what came later is lost")
    typer.echo(f"{state.open_runs} open runs have a note that says so")
