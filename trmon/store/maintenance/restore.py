"""Restore a backup in place of a database that no process uses."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
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
"""The suffixes of SQLite's logs; SQLite applies a log to any file with its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredDatabase:
    """A restored database; `replaced` is the new path of the previous one, None if there was none."""

    file: Path
    n_bytes: int
    replaced: Path | None
    has_tokens: bool


def restore_backup(url: str, backup: Path) -> RestoredDatabase:
    """Replace a database with a copy of a backup; the previous database stays in the same folder.

    If the process is killed, either the previous database or the restored one is in place, complete; one that SQLite
    cannot open may be there without its log, which lies beside its copy.
    Errors: Conflict or NotReady while a process uses the database; NotReady naming the damaged file, for a backup of a
    newer trmon, and for PostgreSQL with the command to use.
    """
    if is_shared(url):
        raise NotReady(
            f"restore PostgreSQL into an empty database with its own tool: pg_restore --no-owner --dbname=URL {backup}"
        )
    file = sqlite.sqlite_file_of(url)
    if not backup.is_file():
        raise NotReady(f"{backup} is not a file")
    with exclusive_use(url), copied_database(backup, beside=file) as copy:
        if not migrations.knows_revision(copy.revision):
            raise NotReady(
                f"{backup} has schema {copy.revision}, which a newer trmon wrote; restore it with that version"
            )
        replaced, has_tokens = None, _has_tokens(copy.file)
        if file.exists():
            replaced = _replace(copy.file, file)
        else:
            _link(copy.file, file)
        sync_folder(file.parent)
        return RestoredDatabase(file=file, n_bytes=copy.n_bytes, replaced=replaced, has_tokens=has_tokens)


def _has_tokens(copy: Path) -> bool:
    with closing(open_sqlite_file(copy, mode="ro")) as connection:
        return connection.execute("SELECT 1 FROM token LIMIT 1").fetchone() is not None


class _Damaged(Exception):
    """SQLite cannot open a database at all."""


def _replace(copy: Path, file: Path) -> Path:
    """Put a copy in place of a database, and return the new path of the latter."""
    try:
        with _exclusive(file):
            aside = _link_aside(file)
            copy.replace(file)
    except _Damaged:
        # A log that SQLite could not merge goes with it; it would apply it to the restored database.
        aside = _link_aside(file)
        for ending in LOGS:
            with suppress(FileNotFoundError):
                file.with_name(f"{file.name}{ending}").replace(aside.with_name(f"{aside.name}{ending}"))
        copy.replace(file)
    return aside


def _link_aside(file: Path) -> Path:
    asides = (file.with_name(f"{file.name}.replaced-{n}") for n in count(1))
    aside = next(aside for aside in asides if _is_linked(file, aside))
    sync_folder(file.parent)
    return aside


def _is_linked(file: Path, aside: Path) -> bool:
    """Link a file under a second name, and return whether it has that name; a killed restore may have linked it."""
    try:
        os.link(file, aside)
    except FileExistsError:
        return aside.samefile(file)
    return True


def _link(copy: Path, file: Path) -> None:
    for log in (file.with_name(f"{file.name}{ending}") for ending in LOGS):
        if log.exists() and log.stat().st_size:
            raise Conflict(f"{log} is a leftover log of another database; move it away first: SQLite would apply it")
    os.link(copy, file)


@contextmanager
def _exclusive(file: Path) -> Iterator[None]:
    """Hold a database exclusively, with its log merged.

    Errors: Conflict while another process has it open; _Damaged.
    """
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
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise _Damaged from error
        raise NotReady(
            f"database {file}: {error}; if no process uses it, move {file.name}* away and restore again"
        ) from error
    except UnicodeDecodeError as error:
        # What SQLite says of a damaged schema quotes its bytes.
        raise _Damaged from error
