"""The office: in the worker's process, what stands for the service it works for."""

from __future__ import annotations

from concurrent.futures import Future
from itertools import count
from threading import BoundedSemaphore, Lock

from trmon.app.apart.line import Line, Seen, Write, Written
from trmon.app.live import Live, RunView
from trmon.app.worker.ledger import Tally
from trmon.domain.errors import NotReady
from trmon.domain.outcome import Outcome

MAX_UNANSWERED = 256
"""Outcomes under way at once: so few answers fit into the line even if nobody takes them out of it."""


class Office:
    """Sends what the worker finds over the line; is its Outcomes, its Display and its Observer."""

    def __init__(self, line: Line, live: Live) -> None:
        self._line = line
        self._live = live
        self._numbers = count()
        self._unanswered: dict[int, Future[None]] = {}
        self._room = BoundedSemaphore(MAX_UNANSWERED)
        self._lock = Lock()
        self._views: dict[int, RunView] = {}
        self._dropped: list[int] = []
        self._tallies: list[Tally] = []
        self._failures: list[str] = []

    def commit(self, outcome: Outcome, *, fence: int | None = None) -> Future[None]:
        """Have an outcome written; the future ends when it is on disk. Errors, from it: NotReady."""
        assert fence is None, "an embedded database has one worker"
        self._room.acquire()
        future: Future[None] = Future()
        with self._lock:
            number = next(self._numbers)
            self._unanswered[number] = future
        self._line.send(Write(number, outcome))
        return future

    def answered(self, written: Written) -> None:
        """End the future of an outcome."""
        with self._lock:
            future = self._unanswered.pop(written.number)
        self._room.release()
        if written.error is None:
            future.set_result(None)
        else:
            future.set_exception(NotReady(written.error))

    def show(self, view: RunView) -> None:
        """Show a run's view, with the others of the round."""
        self._live.show(view)
        self._views[view.run.id] = view

    def drop(self, run_id: int) -> None:
        """Show a run no more."""
        self._live.drop(run_id)
        self._views.pop(run_id, None)
        self._dropped.append(run_id)

    def passed(self, tally: Tally) -> None:
        """Have a pass counted."""
        self._tallies.append(tally)

    def failed(self, error: Exception) -> None:
        """Have a pass that failed counted."""
        self._failures.append(repr(error))

    def listen(self) -> None:
        """Send what the round showed and counted, and be open for news."""
        seen = Seen(tuple(self._views.values()), tuple(self._dropped), tuple(self._tallies), tuple(self._failures))
        self._views, self._dropped, self._tallies, self._failures = {}, [], [], []
        self._line.send(seen)
