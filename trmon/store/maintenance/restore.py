"""A backup's way back: into the place of a database that nobody uses."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from trmon.domain.model.errors import Conflict, NotReady
from trmon.store import migrations
from trmon.store.database import sqlite
from trmon.store.database.connect import is_shared
from trmon.store.maintenance.backup import copied_database, open_sqlite_file, sync_folder
from trmon.store.maintenance.exclusive_lock import exclusive_use

LOGS = ("-wal", "-journal")
"""What SQLite keeps beside a file, and takes for its own whichever file has the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredDatabase:
    """A database that was put in place; `replaced` is where the one before lies now, None if there was none."""

    file: Path
    n_bytes: int
    replaced: Path | None


def restore_backup(url: str, backup: Path) -> RestoredDatabase:
    """Put a copy of a backup where a URL says the database is; the one that was there is kept beside it.

    Whenever it ends, the one or the other is there, whole.
    Errors: Conflict or NotReady while anybody uses the database; NotReady naming the file that is wrong, or that a
    newer trmon wrote the backup; NotReady for PostgreSQL, which has a command of its own.
    """
    if is_shared(url):
        raise NotReady(
            f"PostgreSQL restores itself, into a database without tables: pg_restore --no-owner --dbname=URL {backup}"
        )
    file = sqlite.sqlite_file_of(url)
    if not backup.is_file():
        raise NotReady(f"{backup} is no file")
    with exclusive_use(url), copied_database(backup, beside=file) as copy:
        if not migrations.knows_revision(copy.revision):
            raise NotReady(f"{backup} has schema {copy.revision}, which a newer trmon wrote; restore it with that one")
        replaced = None
        if file.exists():
            replaced = _replace(copy.file, file)
        else:
            _name(copy.file, file)
        sync_folder(file.parent)
        return RestoredDatabase(file=file, n_bytes=copy.n_bytes, replaced=replaced)


def _replace(copy: Path, file: Path) -> Path:
    with _unused(file):
        asides = (file.with_name(f"{file.name}.replaced-{n}") for n in count(1))
        aside = next(aside for aside in asides if _is_linked(file, aside))
        sync_folder(file.parent)
        copy.replace(file)
    return aside


def _is_linked(file: Path, aside: Path) -> bool:
    """Give a file a second name; whether it has it, also since a restore that was ended before it replaced anything."""
    try:
        os.link(file, aside)
    except FileExistsError:
        return aside.samefile(file)
    return True


def _name(copy: Path, file: Path) -> None:
    for log in (file.with_name(f"{file.name}{ending}") for ending in LOGS):
        if log.exists() and log.stat().st_size:
            raise Conflict(f"{log} is of a database that was moved away; move it there too: it would be read into this")
    os.link(copy, file)


@contextmanager
def _unused(file: Path) -> Iterator[None]:
    """Hold a database to oneself, its log folded in. Errors: Conflict while another process has it open."""
    try:
        with closing(open_sqlite_file(file, mode="rw")) as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("BEGIN EXCLUSIVE")
            yield
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise Conflict(f"a service uses {file}; stop it, then restore") from error
        raise NotReady(
            f"database {file}: {error}; if nothing uses it, move {file.name}* away and restore again"
        ) from error
