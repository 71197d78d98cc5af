"""Commit one group: all its items in one transaction or, if one fails, each handler's items in a savepoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Any

from sqlalchemy import Connection, Engine

from trmon.domain.model.errors import NotReady, Overloaded, TrmonError
from trmon.store.database.engines import RetryTransaction
from trmon.store.database.pg_pipeline import defer_waits
from trmon.store.rows.event_rows import append_events
from trmon.store.writing.run_locks import RunLocks
from trmon.store.writing.transaction import FailedWrite, Transaction, WriteGroup, WriteItem

MAX_TRIES = 5

RunSlice = Callable[[Transaction, Sequence[WriteItem]], list[Any]]
"""Runs the items that share a handler, and returns a result for each."""


class Committer:
    """Writes groups through the writing connection; with `locks`, other processes may write too."""

    def __init__(self, engine: Engine, *, locks: RunLocks | None, on_rollback: Callable[[], None]) -> None:
        self._engine = engine
        self._locks = locks
        self._on_rollback = on_rollback
        self._connection: Connection | None = None
        self._stack = ExitStack()

    def commit(self, group: WriteGroup, slices: Iterable[list[WriteItem]]) -> Transaction:
        """Write the slices and append their results to the group; they are durable when this returns.

        SQLite has one writer, so slices are read until none is left, including those that arrive meanwhile. If other
        processes write too, all slices are read first, so that their runs are locked in order. Nearly every group
        succeeds as a whole; if one fails, it runs again with each handler's items in a savepoint, so that a failing
        item does not affect the others.
        Errors: whatever ends the transaction; Overloaded if it lost too often against other processes.
        """
        remaining: Iterable[list[WriteItem]] = slices if self._locks is None else list(slices)
        run_slice: RunSlice = _run_handler
        for _ in range(MAX_TRIES):
            try:
                return self._write(group, remaining, run_slice=run_slice)
            except NotReady:
                raise
            except RetryTransaction:
                pass
            except Exception:
                if run_slice is not _run_handler:
                    raise
                run_slice = self._run_in_savepoint
            group.results.clear()
            self._on_rollback()
            remaining = group.slices()
        raise Overloaded("other processes write to the same runs", retry_after_seconds=1.0)

    def close(self) -> None:
        """Close the connection, which is reused between groups."""
        self._connection = None
        self._stack.close()

    def _write(self, group: WriteGroup, slices: Iterable[list[WriteItem]], *, run_slice: RunSlice) -> Transaction:
        connection = self._connect(pipelined=run_slice is _run_handler)
        try:
            with connection.begin():
                transaction = Transaction(connection)
                if self._locks is not None:
                    self._locks.acquire(connection, group.items)
                for items in slices:
                    group.results.extend(run_slice(transaction, items))
                append_events(connection, transaction.events)
        except BaseException:
            self.close()
            raise
        if run_slice is not _run_handler:
            self.close()
        return transaction

    def _connect(self, *, pipelined: bool) -> Connection:
        if self._connection is None:
            self._connection = self._stack.enter_context(self._engine.connect())
            # In a savepoint a statement must fail where it runs, so its results cannot be deferred.
            if pipelined and self._locks is not None:
                self._stack.enter_context(defer_waits(self._connection))
        return self._connection

    def _run_in_savepoint(self, transaction: Transaction, items: Sequence[WriteItem]) -> list[Any]:
        """Return a result or FailedWrite for each item: run them together or, if that fails, one by one."""
        n_events = len(transaction.events)
        try:
            with transaction.connection.begin_nested():
                return _run_handler(transaction, items)
        except (NotReady, RetryTransaction):
            raise
        except Exception as error:  # noqa: BLE001 - the edge of the writer's loop: the caller gets the error
            del transaction.events[n_events:]
            if not isinstance(error, TrmonError):
                self._on_rollback()
            if len(items) == 1:
                return [FailedWrite(error)]
            return [result for item in items for result in self._run_in_savepoint(transaction, [item])]


def _run_handler(transaction: Transaction, items: Sequence[WriteItem]) -> list[Any]:
    return list(items[0].handler(transaction, [item.item for item in items]))
