"""Common parts of commands that open the database."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from trmon.cli.command import DataDir, echo_error, plain_errors, read_settings
from trmon.domain.access import EVERYTHING, Access, AuditAction
from trmon.domain.identity import checked_name
from trmon.store import Store
from trmon.store.database.engines import is_shared
from trmon.store.database.sqlite import check_file_exists, exclusive_use, explaining_damage, sqlite_file_of
from trmon.store.maintenance.backup import back_up
from trmon.store.maintenance.restore import prepare_restored
from trmon.store.maintenance.restore import restore_backup as put_back


def operator() -> Access:
    """Return the permissions of the user of a command with access to the database, by name."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return Access(name=f"cli:{user}", scopes=EVERYTHING.scopes)


@contextmanager
def open_store(data_dir: Path | None, *, making: bool = False) -> Iterator[Store]:
    """Open the database for one command: as it is or, with `making`, created and migrated to this version.

    Errors: NotReady if it does not exist, is damaged or has another schema, or if it must be migrated while a service
    uses it.
    """
    settings = read_settings(data_dir=data_dir)
    url = settings.store_url
    if not making and not is_shared(url):
        check_file_exists(sqlite_file_of(url))
    with explaining_damage(url), closing(Store.open(url, lake_url=settings.lake_url)) as store:
        if making:
            with exclusive_use(url) if store.is_older else nullcontext():
                store.migrate()
        else:
            store.check()
        yield store


@contextmanager
def new_database_said(data_dir: Path | None) -> Iterator[None]:
    """Say on stderr where the block has made a database file: a service that runs from another folder has another."""
    url = read_settings(data_dir=data_dir).store_url
    file = None if is_shared(url) else sqlite_file_of(url)
    is_new = file is not None and not file.exists()
    yield
    if file is not None and is_new:
        echo_error(
            f"trmon: a new database was made for it, {file.resolve()}; for a service that runs with another, "
            "pass its --data-dir (TRMON_DATA_DIR)"
        )


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
            state = prepare_restored(url, access=operator(), now=time.time())
            if state.newest_report_at is None:
                typer.echo("the restored database has no reports")
            else:
                newest = datetime.fromtimestamp(state.newest_report_at, timezone.utc)
                typer.echo(f"the newest report was received at {newest:%Y-%m-%d %H:%M:%S} UTC; what came later is lost")
            typer.echo(f"{state.open_runs} open runs have a note that says so")
            return
        with open_store(data_dir, making=True):
            typer.echo("the database is up to date")


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
    """Replace the database by a backup and keep the old one next to it; refused while a service uses it."""
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
    with closing(Store.open(f"sqlite:///{restored}")) as store:
        if not store.is_older:
            store.audit.record(
                operator(),
                AuditAction.DATABASE_RESTORE,
                at=time.time(),
                target=restored.name,
                after={"from": str(backup_file.resolve())},
            ).result()


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
