"""Group commit: one writer thread commits all waiting operations together as soon as it is free."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, repeat
from threading import Condition, Thread
from typing import Any

import structlog
from sqlalchemy import ColumnElement, Connection, Engine, Table, delete, select, tuple_

from trmon.domain.errors import NotReady, Overloaded, TrmonError
from trmon.domain.pipeline.publish import Event
from trmon.store.database.engines import RetryTransaction
from trmon.store.database.pg_pipeline import defer_waits
from trmon.store.database.pg_statement import AdvisoryLock, lock_exclusively
from trmon.store.database.upsert import insert_rows
from trmon.store.schema import tables
from trmon.store.writing.run_locks import RunLocks
from trmon.store.writing.transaction import (
    MAX_OPERATIONS,
    FailedWrite,
    Handler,
    Item,
    Operation,
    RunRef,
    T,
    Transaction,
    WriteGroup,
    WriteItem,
)


def append_events(connection: Connection, events: Sequence[tuple[int, Event]]) -> None:
    """Append events, each with the id of its run, as the last statement of a transaction.

    Followers ask for ids larger than the last one they saw, so ids must become visible in order: a lock allows one
    process at a time between its first event and its commit.
    """
    if not events:
        return
    lock_exclusively(connection, AdvisoryLock.EVENTS)
    rows = [{"run_id": run_id, "at": event.at, "kind": event.kind, "data": event.data} for run_id, event in events]
    insert_rows(connection, tables.event, rows=rows)


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
        if self._connection is None:
            self._connection = self._stack.enter_context(self._engine.connect())
            # In a savepoint a statement must fail where it runs, so its results cannot be deferred.
            if run_slice is _run_handler and self._locks is not None:
                self._stack.enter_context(defer_waits(self._connection))
        connection = self._connection
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


SLICE_OPERATIONS = 64
"""Maximum items per call of a handler: fewer cost more statements, more make a group long."""
SHARED_SLICE_OPERATIONS = MAX_OPERATIONS
"""The same on PostgreSQL, where each statement is a round trip and a group takes no items after it began."""
MAX_WAITING = 4096
PATIENT_SECONDS = 1.0
"""How long patient items wait for a group that is committed for others."""
RATE_MEMORY = 0.8
"""Weight of the previous average in the measured rate, per group."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedGroup:
    """A committed group: touched and edited runs and receivers as in `Transaction`, and its duration."""

    touched: frozenset[int]
    edited: frozenset[int]
    receivers: frozenset[str]
    n_operations: int
    seconds: float


class GroupCommit:
    """A thread that owns the writing connection; callers get results only after COMMIT has returned.

    Operations run in the order of their submission; a failing one does not affect the others. A group ends when the
    queue is empty, after 500 operations or after 20 ms; it never waits for more operations.
    """

    def __init__(self, engine: Engine, *, max_waiting: int = MAX_WAITING, locks: RunLocks | None = None) -> None:
        """Args: locks: needed if other processes write to the database too."""
        self._committer = Committer(engine, locks=locks, on_rollback=self._notify_rollback)
        self._slice_operations = SLICE_OPERATIONS if locks is None else SHARED_SLICE_OPERATIONS
        self._max_waiting = max_waiting
        self._waiting: deque[WriteItem] = deque()
        self._wakeup = Condition()
        self._commit_at = math.inf
        """When to commit what waits, by `time.monotonic`; infinity while nothing waits."""
        self._closing = False
        self._per_second = 0.0
        self._commit_listeners: list[Callable[[CommittedGroup], None]] = []
        self._rollback_listeners: list[Callable[[], None]] = []
        self._thread = Thread(target=self._run, name="trmon-writer", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Write all queued operations, then stop."""
        with self._wakeup:
            self._closing = True
            self._wakeup.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether submitted operations will run."""
        return self._thread.is_alive() and not self._closing

    @property
    def depth(self) -> int:
        """The number of queued operations, without those that are patient if no other waits."""
        return len(self._waiting) if self._commit_at <= time.monotonic() else 0

    @property
    def is_empty(self) -> bool:
        """Whether no operation is queued, patient ones included."""
        return not self._waiting

    def on_commit(self, listener: Callable[[CommittedGroup], None]) -> None:
        """Call a listener on the writer's thread after each commit, before the futures resolve; it must be quick."""
        self._commit_listeners.append(listener)

    def on_rollback(self, listener: Callable[[], None]) -> None:
        """Call a listener on the writer's thread after a rollback, which may have undone what it has cached."""
        self._rollback_listeners.append(listener)

    def submit(self, operation: Operation[T], *, run: RunRef | None = None) -> Future[T]:
        """Queue one operation, of a run. Errors: Overloaded, NotReady; the future raises the operation's own errors."""
        return self.submit_each(lambda transaction, _: [operation(transaction)], [None], runs=[run])[0]

    def submit_each(
        self,
        handler: Handler[Item, T],
        items: Sequence[Item],
        *,
        runs: Iterable[RunRef | None] = repeat(None),
        is_patient: bool = False,
    ) -> list[Future[T]]:
        """Queue items for a handler, each of a run; the handler gets up to 64 consecutive items per call.

        Args: is_patient: the items join the next group of others; they begin one only after a second.
        Errors: Overloaded, then no item is queued; NotReady after close.
        """
        queued = [WriteItem(handler, item, Future(), run) for item, run in zip(items, runs, strict=False)]
        with self._wakeup:
            if not self.alive:
                raise NotReady("the writer has stopped; the service is shutting down")
            n_waiting = len(self._waiting)
            if n_waiting and n_waiting + len(queued) > self._max_waiting:
                seconds = n_waiting / self._per_second if self._per_second else 1.0
                raise Overloaded(
                    f"{n_waiting} operations wait for the disk; the limit is {self._max_waiting}",
                    retry_after_seconds=min(max(seconds, 1.0), 60.0),
                )
            self._waiting.extend(queued)
            due = time.monotonic() + (PATIENT_SECONDS if is_patient else 0.0)
            if queued and due < self._commit_at:
                self._commit_at = due
                self._wakeup.notify()
        return [item.future for item in queued]

    def _run(self) -> None:
        while True:
            with self._wakeup:
                while not self._closing and (left := self._commit_at - time.monotonic()) > 0:
                    self._wakeup.wait(None if left == math.inf else left)
                if not self._waiting:
                    break
            self._commit_group()
        self._committer.close()

    def _commit_group(self) -> None:
        group = WriteGroup()
        # Taken before the transaction begins: if it cannot begin, these callers get the error.
        first = self._take_items(group)
        if not first:
            return
        try:
            transaction = self._committer.commit(group, chain([first], self._slices(group)))
        except Exception as error:  # noqa: BLE001 - the edge of the writer's loop: every caller gets the error
            self._notify_rollback()
            group.fail(error)
            _log.warning("group_failed", operations=len(group.items), error=str(error))
            return
        commit = CommittedGroup(
            touched=frozenset(transaction.touched | transaction.edited),
            edited=frozenset(transaction.edited),
            receivers=frozenset(transaction.receivers),
            n_operations=len(group.items),
            seconds=group.seconds,
        )
        # Listeners run before the futures resolve: callers rely on their effects.
        rate = commit.n_operations / max(commit.seconds, 1e-6)
        self._per_second = RATE_MEMORY * (self._per_second or rate) + (1 - RATE_MEMORY) * rate
        for listener in self._commit_listeners:
            try:
                listener(commit)
            except Exception:  # noqa: BLE001 - the edge of the writer's loop: a listener must not end it
                _log.exception("commit_listener_failed")
        group.resolve()

    def _slices(self, group: WriteGroup) -> Iterator[list[WriteItem]]:
        """Yield slices of waiting items that share a handler, until none waits or it is time to commit."""
        while not group.full and (items := self._take_items(group)):
            yield items

    def _take_items(self, group: WriteGroup) -> list[WriteItem]:
        """Move the next items that share a handler to the group; cancelled ones are dropped."""
        items: list[WriteItem] = []
        with self._wakeup:
            while self._waiting and len(items) < self._slice_operations:
                if items and self._waiting[0].handler != items[0].handler:
                    break
                item = self._waiting.popleft()
                if item.future.set_running_or_notify_cancel():
                    items.append(item)
            if not self._waiting:
                self._commit_at = math.inf
        group.items.extend(items)
        return items

    def _notify_rollback(self) -> None:
        for listener in self._rollback_listeners:
            listener()


BATCH_ROWS = 100
"""Rows per transaction; a report has tens of kilobytes."""


def delete_in_batches(
    writer: GroupCommit, table: Table, where: ColumnElement[bool], *, may_continue: Callable[[], bool] = lambda: True
) -> int:
    """Delete the rows that match a predicate and return their number; other writes run in between.

    Args: may_continue: called before each transaction; when it returns False, the remaining rows stay.
    """
    key = list(table.primary_key.columns)
    batch = delete(table).where(tuple_(*key).in_(select(*key).where(where).limit(BATCH_ROWS)))
    deleted = 0
    while may_continue() and (n := writer.submit(lambda to: to.connection.execute(batch).rowcount).result()):
        deleted += n
    return deleted
