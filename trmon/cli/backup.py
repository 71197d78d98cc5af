"""`trmon backup` and `trmon restore`: copy the database and put a copy back."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from trmon.cli.command import DataDir, plain_errors, read_settings
from trmon.cli.database import operator
from trmon.domain.access import AuditAction
from trmon.store import Store
from trmon.store.maintenance.backup import back_up
from trmon.store.maintenance.restore import restore_backup as put_back


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write the copy.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing file.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Copy the SQLite database into one checked file while the service runs (PostgreSQL: use pg_dump)."""
    with plain_errors():
        began_at = time.monotonic()
        copy = back_up(read_settings(data_dir=data_dir).store_url, file, overwrite=overwrite)
        seconds = time.monotonic() - began_at
        typer.echo(f"{copy.file}: {decimal(copy.n_bytes)}, schema {copy.revision}, checked, in {seconds:.1f} s")


def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file that `trmon backup` wrote.")],
    data_dir: DataDir = None,
) -> None:
    """Replace the database by a backup and keep the old one beside it; refused while a service uses it."""
    with plain_errors():
        restored = put_back(read_settings(data_dir=data_dir).store_url, file)
        typer.echo(f"{restored.file}: {decimal(restored.n_bytes)}, from {file}")
        if restored.replaced:
            typer.echo(f"the replaced database is kept as {restored.replaced}")
        _record(restored.file, file)
        if not restored.has_tokens:
            typer.echo("it has no token: every user of this machine is an admin until `trmon token create` creates one")


def _record(restored: Path, backup_file: Path) -> None:
    """Record a restore in the audit log of the restored database, unless it is older than the audit log."""
    store = Store.open(f"sqlite:///{restored}")
    try:
        if not store.is_older:
            store.audit.record(
                operator(),
                AuditAction.DATABASE_RESTORE,
                at=time.time(),
                target=restored.name,
                after={"from": str(backup_file.resolve())},
            ).result()
    finally:
        store.close()
