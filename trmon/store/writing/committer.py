"""Committing one group: each of its works for itself, all of them in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from sqlalchemy import Engine

from trmon.domain.errors import NotReady, Overloaded, TrmonError
from trmon.store.database.runlocks import RunLocks
from trmon.store.events import write_stream
from trmon.store.writing.group import Again, Failed, Group, Transaction, Work

MAX_TRIES = 5


class Committer:
    """Writes groups through the writing connection; with `locks`, beside other processes that do the same."""

    def __init__(self, engine: Engine, *, locks: RunLocks | None, undone: Callable[[], None]) -> None:
        self._engine = engine
        self._locks = locks
        self._undone = undone

    def commit(self, group: Group, slices: Iterable[list[Work]]) -> Transaction:
        """Write works, a handler's together, and note their results in the group; they are durable at the return.

        Slices are asked for as long as they come: SQLite's only writer loses nothing by taking in what arrives
        meanwhile. Beside other processes all are gathered first, so that their runs are locked in order.
        Errors: whatever ends the transaction; Overloaded when others won against it too often.
        """
        if self._locks is None:
            return self._write(group, slices)
        gathered = list(slices)
        for _ in range(MAX_TRIES):
            try:
                return self._write(group, gathered)
            except Again:
                group.results.clear()
                self._undone()
        raise Overloaded("other processes write to the same runs", retry_after_seconds=1.0)

    def _write(self, group: Group, slices: Iterable[list[Work]]) -> Transaction:
        with self._engine.begin() as connection:
            transaction = Transaction(connection)
            if self._locks is not None:
                self._locks.take(connection, group.works)
            for works in slices:
                alone = self._locks is not None and len(group.works) == 1
                group.results.extend((_perform_alone if alone else self._perform)(transaction, works))
            write_stream(connection, transaction.said)
        return transaction

    def _perform(self, transaction: Transaction, works: Sequence[Work]) -> list[Any]:
        """Return a result or Failed for each work, done together or, when that fails, one by one."""
        n_said = len(transaction.said)
        try:
            with transaction.connection.begin_nested():
                return _done(transaction, works)
        except (NotReady, Again):
            raise
        except Exception as error:  # noqa: BLE001 - the edge of the writer's loop: the caller gets the error
            del transaction.said[n_said:]
            if not isinstance(error, TrmonError):
                self._undone()
            if len(works) == 1:
                return [Failed(error)]
            return [result for work in works for result in self._perform(transaction, [work])]


def _done(transaction: Transaction, works: Sequence[Work]) -> list[Any]:
    return list(works[0].handler(transaction, [work.item for work in works]))


def _perform_alone(transaction: Transaction, works: Sequence[Work]) -> list[Any]:
    """Return the result of a transaction's only work: it needs no savepoint, which is two round trips."""
    try:
        return _done(transaction, works)
    except (NotReady, Again):
        raise
    except TrmonError as refusal:
        transaction.connection.rollback()
        transaction.said.clear()
        return [Failed(refusal)]
