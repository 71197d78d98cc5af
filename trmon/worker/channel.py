"""The channel between the service and its worker process: its messages, and the service as the worker sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import count
from multiprocessing.connection import Connection
from threading import BoundedSemaphore, Lock
from typing import Any

from trmon.domain.batches.batch import BatchRow
from trmon.domain.errors import TrmonError
from trmon.domain.identity import BatchKey
from trmon.domain.ownership import Fences
from trmon.domain.pipeline.publish import RunUpdate, RunView
from trmon.fleet.heartbeats import BEAT_SECONDS, Heartbeat
from trmon.fleet.views import RunViewCache
from trmon.worker.pass_changes import PassTally

MAX_UNANSWERED = 256
"""Maximum updates in flight: the results of so few fit into the socket's buffer even if the worker reads none."""


@dataclass(frozen=True, slots=True)
class RunsChanged:
    """To the worker: runs with new messages or edits, each with its revision."""

    revisions: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class CommitResult:
    """To the worker: for each update of a CommitRequest None if it is committed, else the error.

    It is NotReady if the update has no part in it, else TrmonError.
    """

    number: int
    errors: tuple[TrmonError | None, ...]


@dataclass(frozen=True, slots=True)
class Shutdown:
    """To the worker: finish every run's pending work, then exit."""


@dataclass(frozen=True, slots=True)
class Beat:
    """From the worker: it makes progress."""


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """From the worker: updates to commit."""

    number: int
    updates: tuple[RunUpdate, ...]


@dataclass(frozen=True, slots=True)
class RoundResult:
    """From the worker, after each round: views and counts; the service may then send the next RunsChanged.

    `rows` names the batch of each view that is sent without its row: the row is in the run's last CommitRequest.
    """

    views: tuple[RunView, ...]
    rows: Mapping[int, BatchKey]
    dropped: tuple[int, ...]
    tallies: tuple[PassTally, ...]
    failures: tuple[str, ...]


class Channel:
    """One end of a pair of connected sockets; any thread may send, one thread receives."""

    def __init__(self, descriptor: int) -> None:
        self._connection = Connection(descriptor)
        self._send_lock = Lock()

    def send(self, message: object) -> None:
        """Send an object. Errors: OSError if the other end is closed."""
        with self._send_lock:
            self._connection.send(message)

    def receive(self) -> Any:
        """Wait for an object. Errors: EOFError or OSError if the other end is closed."""
        return self._connection.recv()

    def close(self) -> None:
        """Close this end."""
        self._connection.close()


class ServiceProxy:
    """Implements what the worker writes to, over the channel to the service: updates, views and counts."""

    def __init__(self, channel: Channel, view_cache: RunViewCache) -> None:
        self._channel = channel
        self._view_cache = view_cache
        self.heartbeat = Heartbeat(lambda: channel.send(Beat()))
        self._numbers = count()
        self._unanswered: dict[int, list[Future[None]]] = {}
        self._capacity = BoundedSemaphore(MAX_UNANSWERED)
        self._lock = Lock()
        self._sent_rows: dict[int, tuple[BatchRow, ...]] = {}
        self._views: dict[int, RunView] = {}
        self._dropped: list[int] = []
        self._tallies: list[PassTally] = []
        self._failures: list[str] = []

    def commit(self, updates: Sequence[RunUpdate], *, fences: Fences | None = None) -> list[Future[None]]:
        """Have the service commit updates; each future ends when its update is on disk. Errors, from it: TrmonError."""
        assert fences is None, "an embedded database has one worker"
        assert len(updates) <= MAX_UNANSWERED, "more would wait for ever"
        if not updates:
            return []
        futures: list[Future[None]] = [Future() for _ in updates]
        for _ in futures:
            while not self._capacity.acquire(timeout=BEAT_SECONDS):
                self.heartbeat.beat()
        with self._lock:
            number = next(self._numbers)
            self._unanswered[number] = futures
        self._sent_rows |= {update.run_id: update.batches for update in updates}
        self._channel.send(CommitRequest(number, tuple(updates)))
        return futures

    def complete(self, result: CommitResult) -> None:
        """End the futures of the updates of one request."""
        with self._lock:
            futures = self._unanswered.pop(result.number)
        for future, error in zip(futures, result.errors, strict=True):
            self._capacity.release()
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)

    def put(self, view: RunView) -> None:
        """Keep a run's view, to be sent with the others of the round."""
        self._view_cache.put(view)
        self._views[view.run.id] = view

    def remove(self, run_id: int) -> None:
        """Remove a run's view, here and in the service."""
        self._view_cache.remove(run_id)
        self._views.pop(run_id, None)
        self._dropped.append(run_id)

    def pass_committed(self, tally: PassTally) -> None:
        """Count a pass in the service."""
        self._tallies.append(tally)

    def pass_failed(self, error: Exception) -> None:
        """Count a failed pass in the service."""
        self._failures.append(repr(error))

    def send_round_result(self) -> None:
        """Send the views and counts of the round; the service may then send changed runs."""
        rows = {run_id: view.row.key for run_id, view in self._views.items() if view.row and self._is_row_sent(view)}
        views = tuple(replace(view, row=None) if run_id in rows else view for run_id, view in self._views.items())
        result = RoundResult(views, rows, tuple(self._dropped), tuple(self._tallies), tuple(self._failures))
        self._sent_rows, self._views, self._dropped, self._tallies, self._failures = {}, {}, [], [], []
        self._channel.send(result)

    def _is_row_sent(self, view: RunView) -> bool:
        """Whether the view's row was in the last update of its run, so that it is not sent twice."""
        return any(view.row is row for row in self._sent_rows.get(view.run.id, ()))
