"""Restore a backup in place of a database, and prepare one that was restored to an earlier time."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from sqlalchemy import BigInteger, Connection, Engine, bindparam, delete, func, insert, select, text, update

from trmon.domain.access import Access, AuditAction
from trmon.domain.errors import Conflict, NotReady
from trmon.domain.runs.run import RunState
from trmon.store import migrations
from trmon.store.database import engines_of, sqlite
from trmon.store.database.engines import is_shared
from trmon.store.database.sqlite import exclusive_use, sync_path
from trmon.store.maintenance.backup import copied_database, open_sqlite_file
from trmon.store.repositories.audit import write_audit
from trmon.store.schema import tables

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
    cannot open may be there without its log, which is next to its copy.
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
        with closing(open_sqlite_file(copy.file, mode="ro")) as connection:
            has_tokens = connection.execute("SELECT 1 FROM token LIMIT 1").fetchone() is not None
        replaced = None
        if file.exists():
            replaced = _replace(copy.file, file)
        else:
            for log in (file.with_name(f"{file.name}{ending}") for ending in LOGS):
                if log.exists() and log.stat().st_size:
                    raise Conflict(
                        f"{log} is a leftover log of another database; move it away first: SQLite would apply it"
                    )
            os.link(copy.file, file)
        sync_path(file.parent)
        return RestoredDatabase(file=file, n_bytes=copy.n_bytes, replaced=replaced, has_tokens=has_tokens)


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
    sync_path(file.parent)
    return aside


def _is_linked(file: Path, aside: Path) -> bool:
    """Link a file under a second name, and return whether it has that name; a killed restore may have linked it."""
    try:
        os.link(file, aside)
    except FileExistsError:
        return aside.samefile(file)
    return True


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


SKIPPED_IDS = 1 << 32
"""More ids and fences than a database gives out between two backups: at 1,000 a second, in 49 days."""
_TRIES, _WAIT_SECONDS = 20, 0.1
_OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name = 'trmon' AND pid <> pg_backend_pid()
"""
_SEQUENCES = """
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, coalesce(last_value, 0) + :skipped)
FROM pg_sequences WHERE schemaname = current_schema()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredState:
    """The content of a restored database: when its newest report was received, None without one, and its open runs."""

    newest_report_at: float | None
    open_runs: int


def prepare_restored(url: str, *, access: Access, now: float) -> RestoredState:
    """Migrate a restored database, skip the ids that it may have given out since, and return its open runs.

    Workers that still run lose their leases. Repeating it skips further ids and changes nothing else.
    Errors: Conflict while other processes use the database; NotReady for the schema of a newer trmon.
    """
    engines = engines_of(url)
    try:
        with exclusive_use(url):
            if engines.is_shared:
                _check_alone(engines.writing)
            migrations.upgrade_schema(engines.writing)
            with engines.writing.begin() as connection:
                return _prepare(connection, access=access, now=now)
    finally:
        engines.dispose()


def _check_alone(engine: Engine) -> None:
    """Raise Conflict if others use the database; PostgreSQL shows a closed connection for a moment longer."""
    for _ in range(_TRIES):
        with engine.connect() as connection:
            if not connection.scalar(text(_OTHERS)):
                return
        time.sleep(_WAIT_SECONDS)
    raise Conflict("other processes of trmon use the database; stop them all, and run this again")


def _prepare(connection: Connection, *, access: Access, now: float) -> RestoredState:
    if connection.dialect.name == "postgresql":
        connection.execute(text(_SEQUENCES).bindparams(bindparam("skipped", SKIPPED_IDS, BigInteger)))
    else:
        for table in tables.metadata.sorted_tables:
            if table.dialect_options["sqlite"]["autoincrement"]:
                given = {"name": table.name, "skipped": SKIPPED_IDS}
                moved = text("UPDATE sqlite_sequence SET seq = seq + :skipped WHERE name = :name")
                if not connection.execute(moved, given).rowcount:
                    connection.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:name, :skipped)"), given)
    lease = tables.lease.c
    connection.execute(update(tables.lease).values(fence=lease.fence + SKIPPED_IDS, holder=None, expires_at=0.0))
    connection.execute(delete(tables.worker))
    state = RestoredState(
        newest_report_at=connection.scalar(select(func.max(tables.report.c.received_at))),
        open_runs=_note_loss(connection, author=access.name, now=now),
    )
    target, after = str(connection.engine.url.database), {"newest_report_at": state.newest_report_at}
    write_audit(connection, access, AuditAction.DATABASE_RESTORE, target, at=now, after=after)
    return state


def _note_loss(connection: Connection, *, author: str, now: float) -> int:
    """Add a note to each run that had not ended, at its newest closed step, and return their number."""
    run = tables.run.c
    ended = [state.value for state in RunState if state.ended]
    batch = tables.batch.c
    newest = select(batch.step).where(batch.run_id == run.id).order_by(batch.ordinal.desc()).limit(1)
    open_runs = select(run.id, newest.scalar_subquery().label("last_step")).where(run.state.not_in(ended))
    rows = connection.execute(open_runs).all()
    message = (
        "The database was restored to an earlier time. Reports that were acknowledged after that time are lost, unless "
        "their trainer sends them again."
    )
    notes = [{"run_id": row.id, "step": row.last_step, "author": author, "text": message, "at": now} for row in rows]
    if notes:
        connection.execute(insert(tables.note), notes)
    return len(notes)
