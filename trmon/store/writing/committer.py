"""Committing one group: all of its works in one transaction or, if one fails, each of them for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from sqlalchemy import Connection, Engine

from trmon.domain.model.errors import NotReady, Overloaded, TrmonError
from trmon.store.database.engines import RetryTransaction
from trmon.store.database.pg_pipeline import defer_waits
from trmon.store.rows.event_rows import write_stream
from trmon.store.writing.run_locks import RunLocks
from trmon.store.writing.transaction import FailedWrite, Transaction, WriteGroup, WriteItem

MAX_TRIES = 5

Perform = Callable[[Transaction, Sequence[WriteItem]], list[Any]]
"""Does works that share a handler, and returns a result for each."""


class Committer:
    """Writes groups through the writing connection; with `locks`, beside other processes that do the same."""

    def __init__(self, engine: Engine, *, locks: RunLocks | None, undone: Callable[[], None]) -> None:
        self._engine = engine
        self._locks = locks
        self._undone = undone
        self._connection: Connection | None = None
        self._stack = ExitStack()

    def commit(self, group: WriteGroup, slices: Iterable[list[WriteItem]]) -> Transaction:
        """Write works, a handler's together, and note their results in the group; they are durable at the return.

        Slices are asked for as long as they come: SQLite's only writer loses nothing by taking in what arrives
        meanwhile. Beside other processes all are gathered first, so that their runs are locked in order.
        Nearly every group goes through as a whole; the first time one does not, all of it is done once more, each
        handler's works in a savepoint, so that one that fails spoils no other.
        Errors: whatever ends the transaction; Overloaded when others won against it too often.
        """
        given: Iterable[list[WriteItem]] = slices if self._locks is None else list(slices)
        perform: Perform = _done
        for _ in range(MAX_TRIES):
            try:
                return self._write(group, given, perform=perform)
            except NotReady:
                raise
            except RetryTransaction:
                pass
            except Exception:
                if perform is not _done:
                    raise
                perform = self._perform
            group.results.clear()
            self._undone()
            given = group.slices()
        raise Overloaded("other processes write to the same runs", retry_after_seconds=1.0)

    def close(self) -> None:
        """Let go of the connection, which is kept from one group to the next."""
        self._connection = None
        self._stack.close()

    def _write(self, group: WriteGroup, slices: Iterable[list[WriteItem]], *, perform: Perform) -> Transaction:
        connection = self._connected(together=perform is _done)
        try:
            with connection.begin():
                transaction = Transaction(connection)
                if self._locks is not None:
                    self._locks.take(connection, group.works)
                for works in slices:
                    group.results.extend(perform(transaction, works))
                write_stream(connection, transaction.said)
        except BaseException:
            self.close()
            raise
        if perform is not _done:
            self.close()
        return transaction

    def _connected(self, *, together: bool) -> Connection:
        if self._connection is None:
            self._connection = self._stack.enter_context(self._engine.connect())
            # What fails alone is to fail where it is done: a savepoint must not end before its statements have.
            if together and self._locks is not None:
                self._stack.enter_context(defer_waits(self._connection))
        return self._connection

    def _perform(self, transaction: Transaction, works: Sequence[WriteItem]) -> list[Any]:
        """Return a result or Failed for each work, done together or, when that fails, one by one."""
        n_said = len(transaction.said)
        try:
            with transaction.connection.begin_nested():
                return _done(transaction, works)
        except (NotReady, RetryTransaction):
            raise
        except Exception as error:  # noqa: BLE001 - the edge of the writer's loop: the caller gets the error
            del transaction.said[n_said:]
            if not isinstance(error, TrmonError):
                self._undone()
            if len(works) == 1:
                return [FailedWrite(error)]
            return [result for work in works for result in self._perform(transaction, [work])]


def _done(transaction: Transaction, works: Sequence[WriteItem]) -> list[Any]:
    return list(works[0].handler(transaction, [work.item for work in works]))
