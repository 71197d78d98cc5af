"""Groups the updates of several passes into one commit request, since each request has a fixed cost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from trmon.domain.ports import Fences, RunUpdateWriter
from trmon.domain.state.run_snapshot import RunSnapshot
from trmon.domain.state.run_update import RunUpdate
from trmon.runner.run_processor import PassResult
from trmon.views.run_view_cache import RunView

MAX_UPDATES = 32
MAX_WAIT_SECONDS = 0.05
"""How long an update waits for those of later passes, beyond the pass that is running."""


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A pass, the run's view after it, and the future of its commit; None if the pass changed nothing."""

    run_id: int
    result: PassResult
    view: RunView
    future: Future[None] | None


class CommitBatcher:
    """Commits the passes of one round in their order; `sent` lists those that were sent to the writer."""

    def __init__(self, writer: RunUpdateWriter, *, fences: Fences | None) -> None:
        self._writer = writer
        self._fences = fences
        self._waiting: list[tuple[PassResult, RunView, RunUpdate]] = []
        self._waiting_since = 0.0
        self.sent: list[PendingCommit] = []

    def add(self, result: PassResult, view: RunView) -> None:
        """Add a pass, and send the waiting ones if they are many or old."""
        if result.update is None:
            self.sent.append(PendingCommit(view.run.id, result, view, None))
            return
        now = time.monotonic()
        if not self._waiting:
            self._waiting_since = now
        self._waiting.append((result, view, replace(result.update, outlook=_snapshot_of(view))))
        if len(self._waiting) >= MAX_UPDATES or now - self._waiting_since >= MAX_WAIT_SECONDS:
            self.send()

    def send(self) -> None:
        """Send all waiting updates."""
        waiting, self._waiting = self._waiting, []
        futures = commit_updates(self._writer, [update for _, _, update in waiting], fences=self._fences)
        for (result, view, update), future in zip(waiting, futures, strict=True):
            self.sent.append(PendingCommit(update.run_id, result, view, future))


def commit_updates(
    writer: RunUpdateWriter, updates: Sequence[RunUpdate], *, fences: Fences | None
) -> list[Future[None]]:
    """Commit updates and return a future for each; if they cannot even be sent, every future has the error."""
    try:
        return writer.commit(updates, fences=fences)
    except Exception as error:  # noqa: BLE001 - the worker's edge: each of them is retried
        failed: list[Future[None]] = [Future() for _ in updates]
        for future in failed:
            future.set_exception(error)
        return failed


def _snapshot_of(view: RunView) -> RunSnapshot:
    return RunSnapshot(
        gauge_ordinal=None if view.row is None else view.row.ordinal,
        expected_step_seconds=view.expected_step_seconds,
        advice=view.advice,
        proposed=view.proposed,
    )
