"""SQLite: engines, pragmas, prepared statements, the lock on a file, and error messages for operators."""

from __future__ import annotations

import fcntl
import os
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Insert, QueuePool, Update, create_engine, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from trmon.domain.errors import Damaged, NotReady
from trmon.store.database.engines import Engines, check_in_transaction, is_shared, parse_database_url
from trmon.store.schema.column_types import UNREADABLE

BUSY_SECONDS = 5.0
_PRAGMAS = (
    "PRAGMA page_size = 8192",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA wal_autocheckpoint = 4096",
)
WRITER_CACHE_KIB, READER_CACHE_KIB = 32 << 10, 4 << 10
"""Page cache of a connection; there are many readers, and they find pages in the kernel's cache."""
_FILE = "file"
RESTORE = "restore the newest backup with `trmon restore`"
_ADVICE = {
    "database is locked": "another process writes to it for too long; run one `trmon serve` per file",
    "database or disk is full": "free some space on its disk, or shorten the retention",
    "attempt to write a readonly database": "make the file and its directory writable for this user",
    "unable to open database file": "it and its directory must exist and be writable for this user",
    **dict.fromkeys(("database disk image is malformed", "file is not a database"), RESTORE),
    **dict.fromkeys(("malformed database schema", "unsupported file format", "Could not decode"), RESTORE),
    "disk I/O error": "check the disk and the kernel's log",
    "no such table": "run `trmon migrate`",
    "no such column": "run `trmon migrate`",
}
_CALLERS_ERRORS = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.ProgrammingError, sqlite3.NotSupportedError)
"""Errors of a statement or its values; others are of the file or its disk."""


def sqlite_engines(url: str) -> Engines:
    """Return the engines of a file, which is created if missing. Errors: NotReady naming the path."""
    path = sqlite_file_of(url)
    writing = writer_engine(path)
    # A transaction of a reader sees one snapshot and never waits for the writer.
    reader = _engine(path, begin="BEGIN", pool_size=16, busy_seconds=BUSY_SECONDS, cache_kib=READER_CACHE_KIB)
    return Engines(writing=writing, reader=reader, folder=path.parent)


def sqlite_file_of(url: str | URL) -> Path:
    """Return the file that a URL names. Errors: NotReady for a URL without a file or of another database."""
    address = parse_database_url(url)
    if address.get_backend_name() != "sqlite" or not address.database or address.database == ":memory:":
        shown = address.render_as_string(hide_password=True)
        raise NotReady(f"database {shown}: expected sqlite:///path/to/trmon.db, a file, or postgresql://user@host/db")
    return Path(address.database)


def writer_engine(path: Path, *, busy_seconds: float = BUSY_SECONDS) -> Engine:
    """Return an engine whose transactions hold the write lock from the start; the file is created if missing.

    Args: busy_seconds: how long to wait for the lock of another process.
    Errors: NotReady naming the path, here or on connecting.
    """
    make_database_folder(path)
    # The file contains token digests, and SQLite gives its log the same mode. SQLite reports any error itself.
    with suppress(OSError):
        path.touch(mode=0o600)
    return _engine(path, begin="BEGIN IMMEDIATE", pool_size=2, busy_seconds=busy_seconds, cache_kib=WRITER_CACHE_KIB)


def check_file_exists(path: Path) -> None:
    """Raise NotReady if the file does not exist: reading must not create it."""
    if not path.exists():
        raise NotReady(f"there is no database {path}; create it with `trmon serve`, or name its folder with --data-dir")


def make_database_folder(path: Path) -> None:
    """Create the folder of a database file. Errors: NotReady naming the file."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise NotReady(f"database {path}: cannot create its directory ({error.strerror})") from error


def _engine(path: Path, *, begin: str, pool_size: int, busy_seconds: float, cache_kib: int) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        creator=lambda: _connect(path, busy_seconds, cache_kib=cache_kib),
        poolclass=QueuePool,
        pool_size=pool_size,
        max_overflow=pool_size,
    )

    @event.listens_for(engine, "connect")
    def note_file(_: Any, record: ConnectionPoolEntry) -> None:
        record.info[_FILE] = _file_identity(path)

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        # What is written to a removed file is gone once the service ends, although SQLite has synced it.
        if _file_identity(path) != connection.info[_FILE]:
            raise NotReady(f"database {path}: moved or replaced while in use; put it back, or restart the service")
        try:
            connection.connection.cursor().execute(begin)
        except sqlite3.DatabaseError as error:
            raise explain_sqlite_error(path, error) from error

    @event.listens_for(engine, "handle_error", retval=True)
    def explain(context: ExceptionContext) -> NotReady | None:
        original = context.original_exception
        if isinstance(original, sqlite3.DatabaseError) and not isinstance(original, _CALLERS_ERRORS):
            return explain_sqlite_error(path, original)
        return None

    return engine


def _connect(path: Path, busy_seconds: float, *, cache_kib: int) -> Any:
    try:
        connection = sqlite3.connect(
            # A file that was moved away must not be replaced by an empty one.
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        for pragma in (*_PRAGMAS, f"PRAGMA cache_size = -{cache_kib}"):
            connection.execute(pragma)
    except sqlite3.Error as error:
        raise explain_sqlite_error(path, error) from error
    return connection


def _file_identity(path: Path) -> tuple[int, int] | None:
    """Return what distinguishes a file from every other, whatever its name; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def explain_sqlite_error(path: Path, error: sqlite3.Error) -> NotReady:
    """Return SQLite's message about a file, with advice."""
    text = str(error)
    advice = next((advice for known, advice in _ADVICE.items() if text.startswith(known)), None)
    return NotReady(f"database {path}: {text}" + (f"; {advice}" if advice else ""))


@contextmanager
def explaining_damage(url: str) -> Iterator[None]:
    """Raise NotReady with advice for a value that cannot be read, and for other errors if the file is damaged."""
    try:
        yield
    except Damaged as error:
        raise NotReady(f"database {_shown(url)}: {error}; run `trmon doctor`, and {RESTORE}") from error
    except (*UNREADABLE, SQLAlchemyError) as error:
        damage = None if is_shared(url) else _damage(sqlite_file_of(url))
        if damage is None:
            raise
        raise NotReady(f"database {_shown(url)}: {damage}; {RESTORE}") from error


def _shown(url: str) -> str:
    return parse_database_url(url).render_as_string(hide_password=True) if is_shared(url) else str(sqlite_file_of(url))


def _damage(path: Path) -> str | None:
    """Return the first error that SQLite's own check finds in a file; None without one."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            [found] = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        return str(error)
    return None if found == "ok" else " ".join(str(found).split())


Row = Mapping[str, Any]

_DIALECT = sqlite.dialect()


class SqliteStatement:
    """A compiled statement that runs for rows with the same columns in the current transaction.

    Errors: those of SQLAlchemy's connection.
    """

    def __init__(self, statement: Insert | Update, columns: Sequence[str] | None = None) -> None:
        """Args: columns: the columns of an insert that does not name them."""
        compiled = statement.compile(dialect=_DIALECT, column_keys=columns)
        self._text = str(compiled)
        self._names = tuple(compiled.positiontup or ())
        kinds = (compiled.binds[name].type.dialect_impl(_DIALECT) for name in self._names)
        encoders = [kind.bind_processor(_DIALECT) for kind in kinds]
        self._encoders = [(i, encode) for i, encode in enumerate(encoders) if encode is not None]

    def write(self, connection: Connection, rows: Iterable[Row]) -> None:
        """Run it for every row."""
        cursor = _cursor(connection)
        try:
            cursor.executemany(self._text, [self._values(row) for row in rows])
        except sqlite3.Error as error:
            raise self._translate(connection, error) from error

    def insert_returning_ids(self, connection: Connection, rows: Iterable[Row]) -> list[int | None]:
        """Run an insert for every row and return the new ids; None for a row that was not inserted."""
        cursor = _cursor(connection)
        try:
            return [self._insert_returning_id(cursor, row) for row in rows]
        except sqlite3.Error as error:
            raise self._translate(connection, error) from error

    def _insert_returning_id(self, cursor: DBAPICursor, row: Row) -> int | None:
        cursor.execute(self._text, self._values(row))
        return cursor.lastrowid if cursor.rowcount else None

    def _values(self, row: Row) -> list[Any]:
        values = [row[name] for name in self._names]
        for i, encode in self._encoders:
            values[i] = encode(values[i])
        return values

    def _translate(self, connection: Connection, error: sqlite3.Error) -> Exception:
        if isinstance(error, sqlite3.OperationalError):
            return explain_sqlite_error(sqlite_file_of(connection.engine.url), error)
        return IntegrityError(self._text, None, error) if isinstance(error, sqlite3.IntegrityError) else error


def _cursor(connection: Connection) -> DBAPICursor:
    check_in_transaction(connection)
    return connection.connection.cursor()


@contextmanager
def exclusive_use(url: str) -> Iterator[None]:
    """Lock a SQLite file, which need not exist, until the block or the process ends; PostgreSQL needs no lock.

    Errors: NotReady while another process holds the lock, or if its folder cannot be created or written.
    """
    if is_shared(url):
        yield
        return
    file = sqlite_file_of(url)
    make_database_folder(file)
    lock = _lock_file_of(file)
    try:
        held = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise NotReady(f"{lock}: {error.strerror}; make its directory writable for this user") from error
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise NotReady(f"a service uses {file}; stop it, or choose another --data-dir") from error
        record_beat(file, at=time.time())
        yield
    finally:
        os.close(held)


def _lock_file_of(file: Path) -> Path:
    """Return the lock of a database; not the database file itself: on NFS this lock and those of SQLite conflict."""
    return file.with_name(f"{file.name}.lock")


def record_beat(file: Path, *, at: float) -> None:
    """Record when the service that uses a file made progress, as the time of its lock: without a write to its disk."""
    with suppress(OSError):
        os.utime(_lock_file_of(file), (at, at))


def beaten_at(file: Path) -> float | None:
    """Return when the service that uses a file last made progress; None if none uses it."""
    try:
        with _lock_file_of(file).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _lock_file_of(file).stat().st_mtime
    except OSError:
        return None
    return None


PROBE_BYTES = 1 << 18
"""More than a small commit needs, little enough to reserve at every probe."""


def check_disk_space(folder: Path) -> None:
    """Reserve some space in a file without a name and free it again; nothing is written. Errors: NotReady."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, PROBE_BYTES)
    except OSError as error:
        raise NotReady(
            f"cannot write to {folder}: {error.strerror}; free some space on its disk, or make it writable"
        ) from error


def sync_path(path: Path | str) -> None:
    """Have a file, or the names in a folder, survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
