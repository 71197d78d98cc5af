"""Send several statements to PostgreSQL together, and wait for their results together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from select import POLLIN, POLLOUT, poll
from typing import Any

import psycopg
from psycopg import errors
from psycopg.adapt import Transformer
from psycopg.pq import ConnStatus, ExecStatus, Format, PipelineStatus, TransactionStatus
from psycopg.pq.abc import PGconn, PGresult
from sqlalchemy import Connection


@dataclass(frozen=True, slots=True, eq=False)
class PgPreparedStatement:
    """A statement that the server parses once per session, with the formats of its parameters."""

    text: bytes
    formats: Sequence[Format] = ()


_PIPELINE, _DEFERRED = "trmon_pipeline", "trmon_deferred"
_COMMIT = PgPreparedStatement(b"COMMIT")
_DEALLOCATE = b"DEALLOCATE ALL"


class PgPipeline:
    """Pipelined statements of a session that psycopg also uses: between `put` and `wait`, psycopg must not use it.

    Without it, psycopg waits for BEGIN, makes a system call and wakes the server for each statement, and spends several
    times the server's time in the interpreter.
    """

    def __init__(self, driver: psycopg.Connection[Any]) -> None:
        self._driver = driver
        self._session: PGconn = driver.pgconn
        self._names: dict[PgPreparedStatement, bytes] = {}
        self._numbers = count(1)
        self._has_failed = False
        self._reader = Transformer(driver)
        level = driver.isolation_level
        text = "BEGIN" if level is None else f"BEGIN ISOLATION LEVEL {level.name.replace('_', ' ')}"
        self._begin = PgPreparedStatement(text.encode())

    @property
    def has_pending(self) -> bool:
        """Whether there are statements whose results have not been read."""
        return bool(self._session.pipeline_status != PipelineStatus.OFF)

    def put(self, statement: PgPreparedStatement, values: Sequence[bytes | None]) -> None:
        """Send a statement, after BEGIN if no transaction is open. Errors: those of psycopg."""
        if not self.has_pending:
            status = self._session.transaction_status
            self._session.enter_pipeline_mode()
            if self._has_failed and status != TransactionStatus.INERROR:
                # After a failure it is unknown which statements the server has prepared.
                self._session.send_query_params(_DEALLOCATE, None)
                self._names.clear()
                self._has_failed = False
            if status == TransactionStatus.IDLE:
                self._send(self._begin, ())
        self._send(statement, values)

    def wait(self) -> list[tuple[Any, ...]]:
        """Wait for all statements and return the rows of the last one.

        Errors: those of psycopg, for the first statement that failed; the server skips the statements after it.
        """
        try:
            results = self._results()
        except BaseException:
            # The next user could not tell which results are still to come.
            self._driver.close()
            raise
        failed = next(filter(_has_failed, results), None)
        if failed is not None:
            self._has_failed = True
            raise errors.error_from_result(failed, encoding=self._driver.info.encoding)
        self._reader.set_pgresult(results[-1])
        return self._reader.load_rows(0, results[-1].ntuples, tuple)

    def commit(self) -> None:
        """Commit the transaction after all pending statements; psycopg ends a transaction that failed before.

        Errors: those of psycopg; then nothing is committed.
        """
        if self.has_pending or self._session.transaction_status == TransactionStatus.INTRANS:
            self.put(_COMMIT, ())
            try:
                self.wait()
            except psycopg.Error:
                # SQLAlchemy considers the transaction ended.
                if not self._driver.closed:
                    self._driver.rollback()
                raise

    def discard(self) -> None:
        """Wait for pending statements and ignore their errors: psycopg is about to roll back."""
        if self.has_pending and not self._driver.closed:
            with suppress(psycopg.Error):
                self.wait()

    def _send(self, statement: PgPreparedStatement, values: Sequence[bytes | None]) -> None:
        name = self._names.get(statement)
        if name is None:
            name = self._names[statement] = b"trmon_%d" % next(self._numbers)
            self._session.send_prepare(name, statement.text)
        self._session.send_query_prepared(name, values, statement.formats, Format.BINARY)

    def _results(self) -> list[PGresult]:
        """Flush the statements, and return the result of each in order."""
        session, ready = self._session, poll()
        session.pipeline_sync()
        ready.register(session.socket, POLLIN | POLLOUT)
        while session.flush():
            # Results may arrive before everything is sent, and the server waits until they are read.
            if any(events & ~POLLOUT for _, events in ready.poll()):
                session.consume_input()
        ready.modify(session.socket, POLLIN)
        results: list[PGresult] = []
        try:
            while (result := self._next(ready)).status != ExecStatus.PIPELINE_SYNC:
                results.append(result)
            session.exit_pipeline_mode()
        except psycopg.OperationalError:
            # The server states why it ends a session before it closes the connection.
            if not any(map(_has_failed, results)):
                raise
            self._driver.close()
        return results

    def _next(self, ready: poll) -> PGresult:
        session = self._session
        while True:
            while session.is_busy():
                ready.poll()
                session.consume_input()
            found = session.get_result()
            if found is not None:
                return found
            # None separates two statements; a session that ended returns None forever.
            if session.status == ConnStatus.BAD:
                raise errors.OperationalError(session.get_error_message())


def pipeline_of(connection: Connection) -> PgPipeline:
    """Return the pipeline of a connection, which is created on first use."""
    pipeline = known_pipeline(connection)
    if pipeline is None:
        driver: Any = connection.connection.driver_connection
        pipeline = connection.info[_PIPELINE] = PgPipeline(driver)
    return pipeline


def known_pipeline(connection: Connection) -> PgPipeline | None:
    """Return the pipeline of a connection; None if it has none yet or its session is lost."""
    return None if connection.invalidated else connection.info.get(_PIPELINE)


@contextmanager
def defer_waits(connection: Connection) -> Iterator[None]:
    """Within the block, `PgStatement.send` does not wait; errors surface at the next read or at the commit."""
    info = connection.info
    info[_DEFERRED] = True
    try:
        yield
    finally:
        del info[_DEFERRED]


def waits_are_deferred(connection: Connection) -> bool:
    """Whether statements are sent without waiting for their results."""
    return _DEFERRED in connection.info


def _has_failed(result: PGresult) -> bool:
    return result.status == ExecStatus.FATAL_ERROR
