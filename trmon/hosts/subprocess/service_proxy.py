"""The office: in the worker's process, what stands for the service it works for."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import count
from threading import BoundedSemaphore, Lock

from trmon.domain.batches.batch import BatchRow
from trmon.domain.model.errors import NotReady
from trmon.domain.model.slots import Fences
from trmon.domain.state.run_update import RunUpdate
from trmon.hosts.subprocess.channel import Channel, CommitRequest, CommitResult, RoundResult
from trmon.runner.pass_changes import PassTally
from trmon.views.run_view_cache import RunView, RunViewCache

MAX_UNANSWERED = 256
"""Outcomes under way at once: so few answers fit into the line even if nobody takes them out of it."""


class ServiceProxy:
    """Sends what the worker finds over the line; is its Outcomes, its Display and its Observer."""

    def __init__(self, line: Channel, live: RunViewCache) -> None:
        self._line = line
        self._live = live
        self._numbers = count()
        self._unanswered: dict[int, list[Future[None]]] = {}
        self._room = BoundedSemaphore(MAX_UNANSWERED)
        self._lock = Lock()
        self._sent: dict[int, tuple[BatchRow, ...]] = {}
        self._views: dict[int, RunView] = {}
        self._dropped: list[int] = []
        self._tallies: list[PassTally] = []
        self._failures: list[str] = []

    def commit(self, outcomes: Sequence[RunUpdate], *, fences: Fences | None = None) -> list[Future[None]]:
        """Have outcomes written; each future ends when its one is on disk. Errors, from it: NotReady."""
        assert fences is None, "an embedded database has one worker"
        assert len(outcomes) <= MAX_UNANSWERED, "there would never be room for so many"
        if not outcomes:
            return []
        futures: list[Future[None]] = [Future() for _ in outcomes]
        for _ in futures:
            self._room.acquire()
        with self._lock:
            number = next(self._numbers)
            self._unanswered[number] = futures
        self._sent |= {outcome.run_id: outcome.batches for outcome in outcomes}
        self._line.send(CommitRequest(number, tuple(outcomes)))
        return futures

    def answered(self, written: CommitResult) -> None:
        """End the futures of outcomes that were sent together."""
        with self._lock:
            futures = self._unanswered.pop(written.number)
        for future, error in zip(futures, written.errors, strict=True):
            self._room.release()
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(NotReady(error))

    def show(self, view: RunView) -> None:
        """Show a run's view, with the others of the round."""
        self._live.show(view)
        self._views[view.run.id] = view

    def drop(self, run_id: int) -> None:
        """Show a run no more."""
        self._live.drop(run_id)
        self._views.pop(run_id, None)
        self._dropped.append(run_id)

    def passed(self, tally: PassTally) -> None:
        """Have a pass counted."""
        self._tallies.append(tally)

    def failed(self, error: Exception) -> None:
        """Have a pass that failed counted."""
        self._failures.append(repr(error))

    def listen(self) -> None:
        """Send what the round showed and counted, and be open for news."""
        rows = {run_id: view.row.key for run_id, view in self._views.items() if view.row and self._is_there(view)}
        views = tuple(replace(view, row=None) if run_id in rows else view for run_id, view in self._views.items())
        seen = RoundResult(views, rows, tuple(self._dropped), tuple(self._tallies), tuple(self._failures))
        self._sent, self._views, self._dropped, self._tallies, self._failures = {}, {}, [], [], []
        self._line.send(seen)

    def _is_there(self, view: RunView) -> bool:
        """Whether a view's row went over the line in the last outcome of its run: it need not go again."""
        return any(view.row is sent for sent in self._sent.get(view.run.id, ()))
