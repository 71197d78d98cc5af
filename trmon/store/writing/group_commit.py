"""Group commit: one writer thread commits all waiting operations together as soon as it is free."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import chain, repeat
from threading import Condition, Thread

import structlog
from sqlalchemy import Engine

from trmon.domain.model.errors import NotReady, Overloaded
from trmon.store.writing.committer import Committer
from trmon.store.writing.run_locks import RunLocks
from trmon.store.writing.transaction import MAX_OPERATIONS, Handler, Item, Operation, RunRef, T, WriteGroup, WriteItem

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
            if self._waiting and len(self._waiting) + len(queued) > self._max_waiting:
                raise self._overloaded()
            self._waiting.extend(queued)
            due = time.monotonic() + (PATIENT_SECONDS if is_patient else 0.0)
            if queued and due < self._commit_at:
                self._commit_at = due
                self._wakeup.notify()
        return [item.future for item in queued]

    def _overloaded(self) -> Overloaded:
        waiting = len(self._waiting)
        seconds = waiting / self._per_second if self._per_second else 1.0
        return Overloaded(
            f"{waiting} operations wait for the disk; the limit is {self._max_waiting}",
            retry_after_seconds=min(max(seconds, 1.0), 60.0),
        )

    def _run(self) -> None:
        while self._wait_for_items():
            self._commit_group()
        self._committer.close()

    def _wait_for_items(self) -> bool:
        with self._wakeup:
            while not self._closing and (left := self._commit_at - time.monotonic()) > 0:
                self._wakeup.wait(None if left == math.inf else left)
            return bool(self._waiting)

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
        self._notify_commit(commit)
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

    def _notify_commit(self, commit: CommittedGroup) -> None:
        rate = commit.n_operations / max(commit.seconds, 1e-6)
        self._per_second = RATE_MEMORY * (self._per_second or rate) + (1 - RATE_MEMORY) * rate
        for listener in self._commit_listeners:
            try:
                listener(commit)
            except Exception:  # noqa: BLE001 - the edge of the writer's loop: a listener must not end it
                _log.exception("commit_listener_failed")
