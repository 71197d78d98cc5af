"""A backup's way back: into the place of a database that nobody uses."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trmon.domain.errors import Conflict, NotReady
from trmon.store import migrations
from trmon.store.database import sqlite
from trmon.store.database.backup import copied, opened, sync_folder
from trmon.store.database.opening import is_shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A database that was put in place; `replaced` is where the one before lies now, None if there was none."""

    file: Path
    n_bytes: int
    replaced: Path | None


def restore(url: str, backup: Path) -> Restored:
    """Put a copy of a backup where a URL says the database is; the one that was there is kept beside it.

    Errors: Conflict while anybody uses the database; NotReady naming the file that is wrong, or that a newer trmon
    wrote the backup; NotReady for PostgreSQL, which has a command of its own.
    """
    if is_shared(url):
        raise NotReady(
            f"PostgreSQL restores itself, into a database without tables: pg_restore --no-owner --dbname=URL {backup}"
        )
    file = sqlite.file_of(url)
    if not backup.is_file():
        raise NotReady(f"{backup} is no file")
    file.parent.mkdir(parents=True, exist_ok=True)
    with copied(backup, beside=file) as copy:
        if not migrations.knows(copy.revision):
            raise NotReady(f"{backup} has schema {copy.revision}, which a newer trmon wrote; restore it with that one")
        replaced = _set_aside(file) if file.exists() else None
        os.link(copy.file, file)
        sync_folder(file.parent)
        return Restored(file=file, n_bytes=copy.n_bytes, replaced=replaced)


def _set_aside(file: Path) -> Path:
    with _unused(file):
        aside = next(
            path for n in range(1, 1_000_000) if not (path := file.with_name(f"{file.name}.replaced-{n}")).exists()
        )
        return file.rename(aside)


@contextmanager
def _unused(file: Path) -> Iterator[None]:
    """Hold a database to oneself, its log folded in. Errors: Conflict while another process has it open."""
    try:
        with closing(opened(file, mode="rw")) as connection:
            connection.execute("PRAGMA busy_timeout = 0")
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("BEGIN EXCLUSIVE")
            yield
    except sqlite3.Error as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise Conflict(f"a service uses {file}; stop it, then restore") from error
        raise NotReady(f"database {file}: {error}; if nothing uses it, move it away and restore again") from error
