"""Statements on their way to PostgreSQL: sent together, and waited for together."""

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
    """A statement that the server reads once a session; its parameters' formats, in order."""

    text: bytes
    formats: Sequence[Format] = ()


_EXCHANGE, _PATIENT = "trmon_exchange", "trmon_patient"
_COMMIT = PgPreparedStatement(b"COMMIT")
_FORGET = b"DEALLOCATE ALL"


class PgPipeline:
    """One session's statements beside those of its driver; it is the driver's alone whenever nothing is under way.

    The driver's own way costs a wait for the transaction's begin, a call of the kernel for each statement and a wake-up
    of the server, and a multiple of the server's time in the interpreter.
    """

    def __init__(self, driver: psycopg.Connection[Any]) -> None:
        self._driver = driver
        self._session: PGconn = driver.pgconn
        self._names: dict[PgPreparedStatement, bytes] = {}
        self._numbers = count(1)
        self._has_failed = False
        self._reader = Transformer(driver)
        level = driver.isolation_level
        words = "BEGIN" if level is None else f"BEGIN ISOLATION LEVEL {level.name.replace('_', ' ')}"
        self._begin = PgPreparedStatement(words.encode())

    @property
    def under_way(self) -> bool:
        """Whether something was put that nobody has waited for."""
        return bool(self._session.pipeline_status != PipelineStatus.OFF)

    def put(self, statement: PgPreparedStatement, values: Sequence[bytes | None]) -> None:
        """Add a statement, after the begin of a transaction if none is open. Errors: psycopg's."""
        if not self.under_way:
            status = self._session.transaction_status
            self._session.enter_pipeline_mode()
            if self._has_failed and status != TransactionStatus.INERROR:
                self._forget()
            if status == TransactionStatus.IDLE:
                self._send(self._begin, ())
        self._send(statement, values)

    def wait(self) -> list[tuple[Any, ...]]:
        """Return the rows of the statement that was put last, once the server has done all.

        Errors: psycopg's, the first; then nothing that was put after it was done.
        """
        try:
            results = self._results()
        except BaseException:
            # Whoever finds it next could not tell what is still to come.
            self._driver.close()
            raise
        failed = next(filter(_has_failed, results), None)
        if failed is not None:
            self._has_failed = True
            raise errors.error_from_result(failed, encoding=self._driver.info.encoding)
        self._reader.set_pgresult(results[-1])
        return self._reader.load_rows(0, results[-1].ntuples, tuple)

    def commit(self) -> None:
        """Wait for what is under way and the end of its transaction; one that has failed before is left to the driver.

        Errors: psycopg's; then nothing is committed.
        """
        if self.under_way or self._session.transaction_status == TransactionStatus.INTRANS:
            self.put(_COMMIT, ())
            try:
                self.wait()
            except psycopg.Error:
                # SQLAlchemy takes the transaction for ended.
                if not self._driver.closed:
                    self._driver.rollback()
                raise

    def drop(self) -> None:
        """Wait for what is under way, whatever becomes of it: the driver is about to roll back."""
        if self.under_way and not self._driver.closed:
            with suppress(psycopg.Error):
                self.wait()

    def _send(self, statement: PgPreparedStatement, values: Sequence[bytes | None]) -> None:
        name = self._names.get(statement)
        if name is None:
            name = self._names[statement] = b"trmon_%d" % next(self._numbers)
            self._session.send_prepare(name, statement.text)
        self._session.send_query_prepared(name, values, statement.formats, Format.BINARY)

    def _forget(self) -> None:
        """Begin anew: what was to be prepared after a failure was not, and what was before may be what failed."""
        self._session.send_query_params(_FORGET, None)
        self._names.clear()
        self._has_failed = False

    def _results(self) -> list[PGresult]:
        """Send what was put, and return what became of each statement, in order."""
        session, ready = self._session, poll()
        session.pipeline_sync()
        ready.register(session.socket, POLLIN | POLLOUT)
        while session.flush():
            # Much may come back before all is sent, and the server waits for it to be taken.
            if any(what & ~POLLOUT for _, what in ready.poll()):
                session.consume_input()
        ready.modify(session.socket, POLLIN)
        results: list[PGresult] = []
        try:
            while (found := self._next(ready)).status != ExecStatus.PIPELINE_SYNC:
                results.append(found)
            session.exit_pipeline_mode()
        except psycopg.OperationalError:
            # A session that is ended says why before it says nothing more.
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
            # Between two statements there is none; nor, for ever, where the session has ended.
            if session.status == ConnStatus.BAD:
                raise errors.OperationalError(session.get_error_message())


def pipeline_of(connection: Connection) -> PgPipeline:
    """Return what sends statements past SQLAlchemy, in the session of a connection."""
    exchange = known_pipeline(connection)
    if exchange is None:
        driver: Any = connection.connection.driver_connection
        exchange = connection.info[_EXCHANGE] = PgPipeline(driver)
    return exchange


def known_pipeline(connection: Connection) -> PgPipeline | None:
    """Return the exchange of a connection; None before it has one, and where its session is lost."""
    return None if connection.invalidated else connection.info.get(_EXCHANGE)


@contextmanager
def defer_waits(connection: Connection) -> Iterator[None]:
    """Do not wait for what `sending.Sent` sends before something is asked, or the transaction is committed."""
    known = connection.info
    known[_PATIENT] = True
    try:
        yield
    finally:
        del known[_PATIENT]


def waits_are_deferred(connection: Connection) -> bool:
    """Whether nobody waits for what is sent."""
    return _PATIENT in connection.info


def _has_failed(result: PGresult) -> bool:
    return result.status == ExecStatus.FATAL_ERROR
