"""All that is PostgreSQL's own: its connections, their limits, and its errors in plain words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import psycopg
from psycopg import errors
from psycopg.pq import PipelineStatus
from psycopg.types.array import ListBinaryDumper
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine import ExceptionContext, ExecutionContext

from trmon.domain.errors import NotReady
from trmon.store.database.columntypes import BlobList
from trmon.store.database.engines import Again, Engines

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
)
psycopg.adapters.register_dumper(BlobList, ListBinaryDumper)
BINARY = "trmon_binary"
"""The option of a query whose answer is to come as it lies in the tables: as text, bytes are twice as many."""
_PIPELINE = "pipeline"
_LOST_RACES = (errors.DeadlockDetected, errors.SerializationFailure)


def engines(url: str) -> Engines:
    """Return the engines of a database that other processes may write to as well. Errors: NotReady when they connect.

    Args: url: postgresql://user:password@host/database; libpq's parameters may follow it.
    """
    address = make_url(url).set(drivername="postgresql+psycopg")
    # Readers see one state for as long as a transaction lasts, as they do in SQLite.
    reader = _engine(address, pool_size=POOL_SIZE, overflow=POOL_OVERFLOW, isolation="REPEATABLE READ")
    return Engines(
        writing=_engine(address, pool_size=2, overflow=2, isolation="READ COMMITTED"), reader=reader, is_shared=True
    )


def _engine(url: URL, *, pool_size: int, overflow: int, isolation: str) -> Engine:
    engine = create_engine(
        url,
        isolation_level=isolation,
        pool_size=pool_size,
        max_overflow=overflow,
        pool_use_lifo=True,
        connect_args={name: value for name, value in _CONNECTION.items() if name not in url.query},
    )

    @event.listens_for(engine, "do_execute")
    def execute(cursor: Any, statement: str, parameters: Any, context: ExecutionContext) -> bool:
        is_binary = bool(context.execution_options.get(BINARY))
        if cursor.connection.pgconn.pipeline_status == PipelineStatus.OFF:
            if is_binary:
                cursor.execute(statement, parameters, binary=True)
            return is_binary
        with settled(context.root_connection):
            cursor.execute(statement, parameters, binary=is_binary)
            context.root_connection.info[_PIPELINE].sync()
        return True

    @event.listens_for(engine, "handle_error", retval=True)
    def explain(context: ExceptionContext) -> Exception | None:
        original = context.original_exception
        return explained(engine.url, original) if isinstance(original, psycopg.Error) else None

    return engine


@contextmanager
def pipelined(connection: Connection) -> Iterator[None]:
    """Do not wait for what `sending.Sent` sends; what SQLAlchemy runs waits for itself and all that was sent before.

    To be left outside of a transaction, and at once where one has failed.
    """
    driver: Any = connection.connection.driver_connection
    known = connection.info
    stack = ExitStack()
    pipeline = known[_PIPELINE] = stack.enter_context(driver.pipeline())
    try:
        yield
    finally:
        _settle(driver, pipeline)
        del known[_PIPELINE]
        # A connection that is lost says nothing more that could be waited for.
        if not driver.closed:
            # A commit that failed has left its transaction open, and SQLAlchemy takes it for ended.
            driver.rollback()
            stack.close()


@contextmanager
def settled(connection: Connection) -> Iterator[None]:
    """Where something fails, wait for all that was sent: a rollback must find nothing more that failed."""
    try:
        yield
    except psycopg.Error:
        pipeline = connection.info.get(_PIPELINE)
        if pipeline is not None:
            _settle(connection.connection.driver_connection, pipeline)
        raise


def _settle(driver: Any, pipeline: psycopg.Pipeline) -> None:
    # A wait ends with the first failure that it hears of; what was sent after that is to be waited for again.
    while not driver.closed:
        with suppress(psycopg.Error):
            pipeline.sync()
            return


def explained(url: URL, error: psycopg.Error) -> Exception | None:
    """Return what an error means to an operator; None for one that the caller must tell apart itself."""
    if isinstance(error, errors.PipelineAborted):
        return None
    if isinstance(error, _LOST_RACES):
        return Again(str(error))
    advice = next((advice for kind, advice in _ADVICE if isinstance(error, kind)), None)
    if advice is None and not isinstance(error, psycopg.OperationalError):
        return None
    text = " ".join(str(error).split())
    shown = url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)
    advice = advice or next((advice for known, advice in _CONNECTING if known in text), None)
    return NotReady(f"database {shown}: {text}" + (f"; {advice}" if advice else ""))
