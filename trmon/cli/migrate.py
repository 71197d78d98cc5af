"""`trmon migrate`: migrate the database."""

from __future__ import annotations

import typer

from trmon.cli.command import DataDir, plain_errors
from trmon.cli.database import open_store


def migrate(data_dir: DataDir = None) -> None:
    """Migrate the database to this version; `serve` does it automatically."""
    with plain_errors(), open_store(data_dir, making=True):
        typer.echo("the database is up to date")
