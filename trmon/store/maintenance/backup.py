"""Back up a SQLite database while services write to it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import URL

from trmon.domain.errors import Conflict, NotReady
from trmon.store.database import sqlite
from trmon.store.database.engines import parse_database_url

PIECE_PAGES = 4096
"""Pages per copy step, 32 MiB: Python handles signals between steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseCopy:
    """A complete, checked database file, with its size and schema revision."""

    file: Path
    n_bytes: int
    revision: str


def back_up(url: str, file: Path, *, overwrite: bool = False) -> DatabaseCopy:
    """Write a checked, consistent copy of a database to a file; the file appears only when it is complete.

    Errors: Conflict if the file exists and `overwrite` is not set; NotReady naming the damaged file or, for
    PostgreSQL, the command to use.
    """
    address = parse_database_url(url)
    if address.get_backend_name() == "postgresql":
        shown = URL.create(
            "postgresql", username=address.username, host=address.host, port=address.port, database=address.database
        )
        raise NotReady(f"back up PostgreSQL with its own tool: pg_dump --format=custom --file={file} {shown}")
    source = sqlite.sqlite_file_of(url)
    sqlite.check_file_exists(source)
    if file.exists() and not overwrite:
        raise Conflict(f"{file} already exists; choose another name or overwrite it")
    if file.exists() and file.samefile(source):
        raise Conflict(f"{file} is the database itself; choose another name")
    with copied_database(source, beside=file) as copy:
        if overwrite:
            copy.file.replace(file)
        else:
            try:
                os.link(copy.file, file)
            except FileExistsError as error:
                raise Conflict(f"another process created {file}; choose another name or overwrite it") from error
        sqlite.sync_path(file.parent)
        return DatabaseCopy(file=file, n_bytes=copy.n_bytes, revision=copy.revision)


@contextmanager
def copied_database(source: Path, *, beside: Path) -> Iterator[DatabaseCopy]:
    """Yield a checked copy of a database in a temporary file in the folder of its destination.

    Args: beside: the destination.
    Errors: NotReady naming the damaged file.
    """
    part = beside.with_name(f".{beside.name}.{os.getpid()}.part")
    try:
        # It contains token digests: only the owner may read it.
        os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        _copy(source, part)
        yield DatabaseCopy(file=part, n_bytes=part.stat().st_size, revision=_checked(part, source))
    except OSError as error:
        raise NotReady(f"{error.filename or part}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def open_sqlite_file(file: Path, *, mode: str) -> sqlite3.Connection:
    """Return a connection to an existing file. Args: mode: ro or rw. Errors: sqlite3.Error."""
    uri = f"{file.resolve().as_uri()}?mode={mode}"
    return sqlite3.connect(uri, uri=True, timeout=sqlite.BUSY_SECONDS, isolation_level=None)


def _copy(source: Path, part: Path) -> None:
    try:
        with closing(open_sqlite_file(source, mode="rw")) as reading, closing(sqlite3.connect(part)) as writing:
            # The transaction keeps one snapshot: without it, every commit of another process restarts the copy.
            reading.execute("BEGIN")
            reading.execute("SELECT 1 FROM sqlite_schema").fetchone()
            reading.backup(writing, pages=PIECE_PAGES)
            # The copy is one file without a log.
            writing.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise sqlite.explain_sqlite_error(source, error) from error
    sqlite.sync_path(part)


def _checked(part: Path, source: Path) -> str:
    """Return the schema revision of a copy. Errors: NotReady if it is damaged or not a database of trmon."""
    with closing(open_sqlite_file(part, mode="ro")) as connection:
        try:
            [(result,)] = connection.execute("PRAGMA integrity_check(1)")
            if result != "ok":
                found = " ".join(result.split())
                raise NotReady(f"database {source} is damaged: {found}; keep it, and restore a backup")
            (revision,) = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except sqlite3.Error as error:
            raise NotReady(f"{source} is not a database of trmon: {error}") from error
    return str(revision)
