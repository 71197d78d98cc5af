"""PostgreSQL: engines, session limits, and error messages for operators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import ExceptionContext, ExecutionContext
from sqlalchemy.exc import IntegrityError

from trmon.domain.errors import DatabaseAway, InvalidInput, NotReady
from trmon.store.database.engines import Engines, RetryTransaction, parse_database_url
from trmon.store.database.pg_pipeline import known_pipeline

CONNECT_SECONDS = 5
POOL_SIZE = 8
POOL_OVERFLOW = 40
"""Pool and overflow together exceed the number of threads that read at the same time."""

# A transaction whose process hangs or lost its network must not hold its locks, since other processes wait for them.
_SESSION = {
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "10s",
    "statement_timeout": "60s",
    "timezone": "UTC",
}
# A server whose machine is down sends nothing: TCP keepalives detect it.
_CONNECTION = {
    "application_name": "trmon",
    "client_encoding": "utf8",
    "connect_timeout": CONNECT_SECONDS,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
    "options": " ".join(f"-c {name}={value}" for name, value in _SESSION.items()),
}
_ADVICE: tuple[tuple[type[psycopg.Error], str], ...] = (
    (errors.UndefinedTable, "run `trmon migrate`"),
    (errors.UndefinedColumn, "run `trmon migrate`"),
    (errors.DiskFull, "free some space on its disk, or shorten the retention"),
    (errors.TooManyConnections, "raise its max_connections, or run fewer processes"),
    (errors.ReadOnlySqlTransaction, "it is a standby or read only; use the primary"),
    (errors.InsufficientPrivilege, "its user must own the tables"),
    (errors.QueryCanceled, "it is slow or overloaded; check its log and pg_stat_activity"),
    (errors.LockNotAvailable, "another session holds a lock for too long; check pg_locks"),
)
_CONNECTING = (
    ("password authentication failed", "check user and password in TRMON_DATABASE_URL"),
    ("does not exist", "create it: createdb, createuser"),
    ("too many clients", "raise its max_connections, or run fewer processes"),
    ("Connection refused", "nothing listens there; start the server, or correct TRMON_DATABASE_URL"),
    ("could not translate host name", "correct the host in TRMON_DATABASE_URL"),
    ("failed to resolve host", "correct the host in TRMON_DATABASE_URL"),
    ("invalid connection option", "correct TRMON_DATABASE_URL"),
    ("invalid sslmode", "correct TRMON_DATABASE_URL"),
    ("bad value for", "correct TRMON_DATABASE_URL"),
)
_AWAY = (
    *(
        "Connection refused",
        "Connection reset",
        "Connection timed out",
        "timeout expired",
    ),
    *("No route to host", "Network is unreachable", "could not translate host name", "failed to resolve host"),
    *("server closed the connection", "the database system is", "too many clients"),
)
BINARY = "trmon_binary"
"""The execution option of a query that returns binary results: as text, byte columns are twice as large."""
_LOST_RACES = (errors.DeadlockDetected, errors.SerializationFailure)


def postgres_engines(url: str) -> Engines:
    """Return the engines of a database that other processes may also write to. Errors: NotReady on connecting.

    Args: url: postgresql://user:password@host/database, optionally with libpq parameters.
    """
    address = parse_database_url(url).set(drivername="postgresql+psycopg")
    # Readers see one snapshot per transaction, as in SQLite.
    reader = _engine(address, pool_size=POOL_SIZE, overflow=POOL_OVERFLOW, isolation="REPEATABLE READ")
    return Engines(
        # psycopg would deallocate all prepared statements from time to time if it prepared its own.
        writing=_engine(address, pool_size=2, overflow=2, isolation="READ COMMITTED", prepare_threshold=None),
        reader=reader,
        is_shared=True,
    )


def _engine(url: URL, *, pool_size: int, overflow: int, isolation: str, **connect_args: object) -> Engine:
    engine = create_engine(
        url,
        isolation_level=isolation,
        pool_size=pool_size,
        max_overflow=overflow,
        pool_use_lifo=True,
        connect_args={name: value for name, value in (_CONNECTION | connect_args).items() if name not in url.query},
    )
    _add_pipeline_hooks(engine)

    @event.listens_for(engine, "do_execute")
    def execute(cursor: Any, statement: str, parameters: Any, context: ExecutionContext) -> bool:
        is_binary = bool(context.execution_options.get(BINARY))
        if is_binary:
            cursor.execute(statement, parameters, binary=True)
        return is_binary

    @event.listens_for(engine, "handle_error", retval=True)
    def explain(context: ExceptionContext) -> Exception | None:
        original = context.original_exception
        if not isinstance(original, psycopg.Error):
            return None
        return explain_postgres_error(engine.url, original) or (
            explain_driver_message(engine.url, original) if context.connection is None else None
        )

    return engine


def _add_pipeline_hooks(engine: Engine) -> None:
    """Finish pending pipelined statements before SQLAlchemy uses the session, and at the end of each transaction."""

    @event.listens_for(engine, "before_cursor_execute")
    def wait(connection: Connection, *_: Any) -> None:
        pipeline = known_pipeline(connection)
        if pipeline is not None and pipeline.has_pending:
            with translate_driver_errors(connection):
                pipeline.wait()

    @event.listens_for(engine, "commit")
    def commit(connection: Connection) -> None:
        pipeline = known_pipeline(connection)
        if pipeline is not None:
            with translate_driver_errors(connection):
                pipeline.commit()

    @event.listens_for(engine, "rollback")
    def rollback(connection: Connection) -> None:
        pipeline = known_pipeline(connection)
        if pipeline is not None:
            pipeline.discard()


@contextmanager
def translate_driver_errors(connection: Connection) -> Iterator[None]:
    """Raise driver errors as SQLAlchemy's connection does."""
    try:
        yield
    except psycopg.IntegrityError as error:
        raise IntegrityError(None, None, error) from error
    except psycopg.Error as error:
        raise explain_postgres_error(connection.engine.url, error) or error from error


def explain_postgres_error(url: URL, error: psycopg.Error) -> Exception | None:
    """Return an error with advice for operators; None for errors that the caller must handle."""
    if isinstance(error, _LOST_RACES):
        return RetryTransaction(str(error))
    if isinstance(error, psycopg.DataError) and "0x00" in str(error):
        return InvalidInput("text", "must not contain a NUL character")
    advice = next((advice for kind, advice in _ADVICE if isinstance(error, kind)), None)
    if advice is None and not isinstance(error, psycopg.OperationalError):
        return None
    return explain_driver_message(url, error, advice=advice)


def explain_driver_message(url: URL, error: psycopg.Error, *, advice: str | None = None) -> NotReady:
    """Return the driver's message about a database, with advice."""
    text = " ".join(str(error).split())
    shown = url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
    advice = advice or next((advice for known, advice in _CONNECTING if known in text), None)
    kind = DatabaseAway if any(known in text for known in _AWAY) else NotReady
    return kind(f"database {shown}: {text}" + (f"; {advice}" if advice else ""))
