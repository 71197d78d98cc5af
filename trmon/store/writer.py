"""The one writer: it commits whatever waits, together, as soon as it is free."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, TypeVar

import structlog
from sqlalchemy import Connection, Engine

from trmon.domain.errors import NotReady, Overloaded

T = TypeVar("T")
Item = TypeVar("Item")

GROUP_SECONDS = 0.020
GROUP_OPERATIONS = 500
SLICE_OPERATIONS = 64
MAX_WAITING = 10_000
RATE_MEMORY = 0.8
"""Weight of the past in the measured rate, per group."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Transaction:
    """What an operation writes through; `touched` collects the runs it changed."""

    connection: Connection
    touched: set[int] = field(default_factory=set)


Operation = Callable[[Transaction], T]
Handler = Callable[[Transaction, Sequence[Item]], Sequence[T]]
"""Does many items at once and answers each, in order."""


@dataclass(frozen=True, slots=True)
class _Work:
    handler: Handler[Any, Any]
    item: Any
    future: Future[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """One committed group: the runs it touched, how many operations it held and how long it took."""

    touched: frozenset[int]
    n_operations: int
    seconds: float


class GroupCommit:
    """A thread that owns the writing connection; results are handed out only after COMMIT has returned.

    Operations run in the order in which they came, each in a savepoint of its own: one that fails spoils no other.
    A group ends when nothing waits, after 500 operations or 20 ms of work.
    """

    def __init__(self, engine: Engine, *, max_waiting: int = MAX_WAITING) -> None:
        self._engine = engine
        self._max_waiting = max_waiting
        self._waiting: deque[_Work] = deque()
        self._wakeup = Condition()
        self._closing = False
        self._per_second = 0.0
        self._on_commit: list[Callable[[Commit], None]] = []
        self._on_rollback: list[Callable[[], None]] = []
        self._thread = Thread(target=self._run, name="trmon-writer", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Write what waits, then stop."""
        with self._wakeup:
            self._closing = True
            self._wakeup.notify()
        if self._thread.is_alive():
            self._thread.join()

    @property
    def alive(self) -> bool:
        """Whether submitted operations will be done."""
        return self._thread.is_alive() and not self._closing

    @property
    def depth(self) -> int:
        """How many operations wait."""
        return len(self._waiting)

    def on_commit(self, listener: Callable[[Commit], None]) -> None:
        """Call the listener after each commit, on the writer's thread: it must be quick."""
        self._on_commit.append(listener)

    def on_rollback(self, listener: Callable[[], None]) -> None:
        """Call the listener, on the writer's thread, whenever something it may have seen was undone."""
        self._on_rollback.append(listener)

    def submit(self, operation: Operation[T]) -> Future[T]:
        """Queue one operation. Errors: Overloaded, NotReady; the operation's own come out of the future."""
        return self.submit_each(_each, [operation])[0]

    def submit_each(self, handler: Handler[Item, T], items: Sequence[Item]) -> list[Future[T]]:
        """Queue items for a handler, which gets as many of them at once as wait in a row, at most 64.

        Errors: Overloaded, with none of the items queued; NotReady after close.
        """
        works = [_Work(handler, item, Future()) for item in items]
        with self._wakeup:
            if not self.alive:
                raise NotReady("the writer has stopped; the service is shutting down")
            if len(self._waiting) + len(works) > self._max_waiting:
                raise self._overloaded()
            self._waiting.extend(works)
            self._wakeup.notify()
        return [work.future for work in works]

    def _overloaded(self) -> Overloaded:
        waiting = len(self._waiting)
        seconds = waiting / self._per_second if self._per_second else 1.0
        return Overloaded(
            f"{waiting} operations wait for the disk, at most {self._max_waiting} may",
            retry_after_seconds=min(max(seconds, 1.0), 60.0),
        )

    def _run(self) -> None:
        while self._wait():
            self._commit_group()

    def _wait(self) -> bool:
        with self._wakeup:
            self._wakeup.wait_for(lambda: self._waiting or self._closing)
            return bool(self._waiting)

    def _commit_group(self) -> None:
        group = _Group()
        works = self._take(group)
        try:
            with self._engine.begin() as connection:
                transaction = Transaction(connection)
                while works:
                    group.results.extend(self._perform(transaction, works))
                    works = [] if group.full else self._take(group)
        except Exception as error:  # noqa: BLE001 - the edge of the writer's loop: every waiter gets the error
            self._undone()
            group.fail(error)
            _log.warning("group_failed", operations=len(group.taken), error=str(error))
            return
        self._committed(group, transaction)

    def _committed(self, group: _Group, transaction: Transaction) -> None:
        commit = Commit(
            touched=frozenset(transaction.touched),
            n_operations=len(group.taken),
            seconds=group.seconds,
        )
        rate = commit.n_operations / max(commit.seconds, 1e-6)
        self._per_second = RATE_MEMORY * (self._per_second or rate) + (1 - RATE_MEMORY) * rate
        group.resolve()
        for listener in self._on_commit:
            listener(commit)

    def _take(self, group: _Group) -> list[_Work]:
        """Move the next works that share a handler to the group; those whose caller has gone away are dropped."""
        works: list[_Work] = []
        with self._wakeup:
            while self._waiting and len(works) < SLICE_OPERATIONS:
                if works and self._waiting[0].handler != works[0].handler:
                    break
                work = self._waiting.popleft()
                if work.future.set_running_or_notify_cancel():
                    works.append(work)
        group.taken.extend(works)
        return works

    def _perform(self, transaction: Transaction, works: Sequence[_Work]) -> list[Any]:
        """Return a result or an error for each work, done together or, when that fails, one by one."""
        try:
            with transaction.connection.begin_nested():
                return list(works[0].handler(transaction, [work.item for work in works]))
        except NotReady:
            raise
        except Exception as error:  # noqa: BLE001 - the edge of the writer's loop: the caller gets the error
            self._undone()
            if len(works) == 1:
                return [_Failed(error)]
            return [result for work in works for result in self._perform(transaction, [work])]

    def _undone(self) -> None:
        for listener in self._on_rollback:
            listener()


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception


@dataclass(slots=True)
class _Group:
    taken: list[_Work] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    started_at: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started_at

    @property
    def full(self) -> bool:
        return len(self.taken) >= GROUP_OPERATIONS or self.seconds >= GROUP_SECONDS

    def fail(self, error: Exception) -> None:
        for work in self.taken:
            work.future.set_exception(error)

    def resolve(self) -> None:
        for work, result in zip(self.taken, self.results, strict=True):
            if isinstance(result, _Failed):
                work.future.set_exception(result.error)
            else:
                work.future.set_result(result)


def _each(transaction: Transaction, operations: Sequence[Operation[Any]]) -> list[Any]:
    return [operation(transaction) for operation in operations]
