"""The one writer: it commits whatever waits, together, as soon as it is free."""

from __future__ import annotations

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
"""How many items a handler gets at once: below it the cost of a statement shows, above it a group grows long."""
SHARED_SLICE_OPERATIONS = MAX_OPERATIONS
"""The same beside other processes, where each statement is a round trip and a group takes in nothing on its way."""
MAX_WAITING = 4096
RATE_MEMORY = 0.8
"""Weight of the past in the measured rate, per group."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedGroup:
    """A committed group, as of `Transaction`: runs touched, those edited, receivers addressed; how long it took."""

    touched: frozenset[int]
    edited: frozenset[int]
    addressed: frozenset[str]
    n_operations: int
    seconds: float


class GroupCommit:
    """A thread that owns the writing connection; results are handed out only after COMMIT has returned.

    Operations run in the order in which they came; one that fails spoils no other. A group ends when nothing waits,
    after 500 operations or 20 ms of work; it never waits for more.
    """

    def __init__(self, engine: Engine, *, max_waiting: int = MAX_WAITING, locks: RunLocks | None = None) -> None:
        """Write alone or, with locks, beside other processes."""
        self._committer = Committer(engine, locks=locks, undone=self._undone)
        self._slice_operations = SLICE_OPERATIONS if locks is None else SHARED_SLICE_OPERATIONS
        self._max_waiting = max_waiting
        self._waiting: deque[WriteItem] = deque()
        self._wakeup = Condition()
        self._closing = False
        self._per_second = 0.0
        self._on_commit: list[Callable[[CommittedGroup], None]] = []
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

    def on_commit(self, listener: Callable[[CommittedGroup], None]) -> None:
        """Call the listener after each commit, before its callers are answered, on the writer's thread: be quick."""
        self._on_commit.append(listener)

    def on_rollback(self, listener: Callable[[], None]) -> None:
        """Call the listener, on the writer's thread, when what it remembers may have been undone."""
        self._on_rollback.append(listener)

    def submit(self, operation: Operation[T], *, run: RunRef | None = None) -> Future[T]:
        """Queue one operation, on a run. Errors: Overloaded, NotReady; the operation's own come out of the future."""
        return self.submit_each(lambda transaction, _: [operation(transaction)], [None], runs=[run])[0]

    def submit_each(
        self, handler: Handler[Item, T], items: Sequence[Item], *, runs: Iterable[RunRef | None] = repeat(None)
    ) -> list[Future[T]]:
        """Queue items for a handler, each of a run, which gets as many of them at once as wait in a row, at most 64.

        Errors: Overloaded, with none of the items queued; NotReady after close.
        """
        works = [WriteItem(handler, item, Future(), run) for item, run in zip(items, runs, strict=False)]
        with self._wakeup:
            if not self.alive:
                raise NotReady("the writer has stopped; the service is shutting down")
            if self._waiting and len(self._waiting) + len(works) > self._max_waiting:
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
        self._committer.close()

    def _wait(self) -> bool:
        with self._wakeup:
            self._wakeup.wait_for(lambda: self._waiting or self._closing)
            return bool(self._waiting)

    def _commit_group(self) -> None:
        group = WriteGroup()
        # Taken before the transaction begins: where it cannot, there must be somebody who hears of it.
        first = self._take(group)
        if not first:
            return
        try:
            transaction = self._committer.commit(group, chain([first], self._slices(group)))
        except Exception as error:  # noqa: BLE001 - the edge of the writer's loop: every caller gets the error
            self._undone()
            group.fail(error)
            _log.warning("group_failed", operations=len(group.works), error=str(error))
            return
        commit = CommittedGroup(
            touched=frozenset(transaction.touched | transaction.edited),
            edited=frozenset(transaction.edited),
            addressed=frozenset(transaction.addressed),
            n_operations=len(group.works),
            seconds=group.seconds,
        )
        # Who is answered may rely on all that listeners do.
        self._tell(commit)
        group.resolve()

    def _slices(self, group: WriteGroup) -> Iterator[list[WriteItem]]:
        """Yield what waits, a handler's works together, until nothing does or it is time to commit."""
        while not group.full and (works := self._take(group)):
            yield works

    def _take(self, group: WriteGroup) -> list[WriteItem]:
        """Move the next works that share a handler to the group; those whose caller has gone away are dropped."""
        works: list[WriteItem] = []
        with self._wakeup:
            while self._waiting and len(works) < self._slice_operations:
                if works and self._waiting[0].handler != works[0].handler:
                    break
                work = self._waiting.popleft()
                if work.future.set_running_or_notify_cancel():
                    works.append(work)
        group.works.extend(works)
        return works

    def _undone(self) -> None:
        for listener in self._on_rollback:
            listener()

    def _tell(self, commit: CommittedGroup) -> None:
        rate = commit.n_operations / max(commit.seconds, 1e-6)
        self._per_second = RATE_MEMORY * (self._per_second or rate) + (1 - RATE_MEMORY) * rate
        for listener in self._on_commit:
            try:
                listener(commit)
            except Exception:  # noqa: BLE001 - the edge of the writer's loop: nobody may end it
                _log.exception("commit_listener_failed")
