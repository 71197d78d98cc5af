"""All that is PostgreSQL's own: its connections, their limits, and its errors in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors
from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import ExceptionContext, ExecutionContext
from sqlalchemy.exc import IntegrityError

from trmon.domain.model.errors import InvalidInput, NotReady
from trmon.store.database.engines import Engines, RetryTransaction
from trmon.store.database.pg_pipeline import known_pipeline
from trmon.store.database.url import parse_database_url

CONNECT_SECONDS = 5
POOL_SIZE = 8
POOL_OVERFLOW = 40
"""More readers at once than that is more than a process has threads."""

# A transaction whose process was stopped or cut off must not keep its locks: others wait for them.
_SESSION = {
    "idle_in_transaction_session_timeout": "10s",
    "lock_timeout": "10s",
    "statement_timeout": "60s",
    "timezone": "UTC",
}
# A server whose machine is gone says nothing at all: the kernel must notice.
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
    (errors.ReadOnlySqlTransaction, "it is a standby, or set to read only; name the primary"),
    (errors.InsufficientPrivilege, "its user must own the tables"),
    (errors.QueryCanceled, "it is slow or overloaded; look at its log and at pg_stat_activity"),
    (errors.LockNotAvailable, "another session holds a lock for too long; look at pg_locks"),
)
_CONNECTING = (
    ("password authentication failed", "check user and password in TRMON_DATABASE_URL"),
    ("does not exist", "create it: createdb, createuser"),
    ("too many clients", "raise its max_connections, or run fewer processes"),
    ("Connection refused", "it does not listen there; start it, or correct TRMON_DATABASE_URL"),
    ("could not translate host name", "correct the host in TRMON_DATABASE_URL"),
    ("failed to resolve host", "correct the host in TRMON_DATABASE_URL"),
    ("invalid connection option", "correct TRMON_DATABASE_URL"),
    ("invalid sslmode", "correct TRMON_DATABASE_URL"),
    ("bad value for", "correct TRMON_DATABASE_URL"),
)
BINARY = "trmon_binary"
"""The option of a query whose answer is to come as it lies in the tables: as text, bytes are twice as many."""
_LOST_RACES = (errors.DeadlockDetected, errors.SerializationFailure)


def postgres_engines(url: str) -> Engines:
    """Return the engines of a database that other processes may write to as well. Errors: NotReady when they connect.

    Args: url: postgresql://user:password@host/database; libpq's parameters may follow it.
    """
    address = parse_database_url(url).set(drivername="postgresql+psycopg")
    # Readers see one state for as long as a transaction lasts, as they do in SQLite.
    reader = _engine(address, pool_size=POOL_SIZE, overflow=POOL_OVERFLOW, isolation="REPEATABLE READ")
    return Engines(
        # The driver has the server forget all that was prepared, now and then, once it has prepared anything itself.
        writing=_engine(address, pool_size=2, overflow=2, isolation="READ COMMITTED", prepare_threshold=None),
        reader=reader,
        is_shared=True,
    )


def _engine(url: URL, *, pool_size: int, overflow: int, isolation: str, **own: object) -> Engine:
    engine = create_engine(
        url,
        isolation_level=isolation,
        pool_size=pool_size,
        max_overflow=overflow,
        pool_use_lifo=True,
        connect_args={name: value for name, value in (_CONNECTION | own).items() if name not in url.query},
    )
    _share_sessions(engine)

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


def _share_sessions(engine: Engine) -> None:
    """Give each session back to the driver, for what SQLAlchemy runs, and at its transactions' ends."""

    @event.listens_for(engine, "before_cursor_execute")
    def wait(connection: Connection, *_: Any) -> None:
        exchange = known_pipeline(connection)
        if exchange is not None and exchange.under_way:
            with translate_driver_errors(connection):
                exchange.wait()

    @event.listens_for(engine, "commit")
    def commit(connection: Connection) -> None:
        exchange = known_pipeline(connection)
        if exchange is not None:
            with translate_driver_errors(connection):
                exchange.commit()

    @event.listens_for(engine, "rollback")
    def rollback(connection: Connection) -> None:
        exchange = known_pipeline(connection)
        if exchange is not None:
            exchange.drop()


@contextmanager
def translate_driver_errors(connection: Connection) -> Iterator[None]:
    """Raise what fails in the driver as SQLAlchemy's connection does."""
    try:
        yield
    except psycopg.IntegrityError as error:
        raise IntegrityError(None, None, error) from error
    except psycopg.Error as error:
        raise explain_postgres_error(connection.engine.url, error) or error from error


def explain_postgres_error(url: URL, error: psycopg.Error) -> Exception | None:
    """Return what an error means to an operator; None for one that the caller must tell apart itself."""
    if isinstance(error, _LOST_RACES):
        return RetryTransaction(str(error))
    if isinstance(error, psycopg.DataError) and "0x00" in str(error):
        return InvalidInput("text", "must not hold a NUL character")
    advice = next((advice for kind, advice in _ADVICE if isinstance(error, kind)), None)
    if advice is None and not isinstance(error, psycopg.OperationalError):
        return None
    return explain_driver_message(url, error, advice=advice)


def explain_driver_message(url: URL, error: psycopg.Error, *, advice: str | None = None) -> NotReady:
    """Return what the driver said of a database, with what to do about it."""
    text = " ".join(str(error).split())
    shown = url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
    advice = advice or next((advice for known, advice in _CONNECTING if known in text), None)
    return NotReady(f"database {shown}: {text}" + (f"; {advice}" if advice else ""))
