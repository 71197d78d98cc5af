"""Dispatch: passes on their way to the disk, some at a time, since an errand to the writer costs more than it says."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

from trmon.domain.model.slots import Fences
from trmon.domain.ports import RunUpdateWriter
from trmon.domain.state.run_snapshot import RunSnapshot
from trmon.domain.state.run_update import RunUpdate
from trmon.runner.run_processor import PassResult
from trmon.views.run_view_cache import RunView

MOST_TOGETHER = 32
LONGEST_SECONDS = 0.05
"""How long a pass waits for those after it at most, beside the one that is being made."""


@dataclass(frozen=True, slots=True)
class PendingCommit:
    """A pass over a run, what is to be seen of it, and the future that ends when it is on disk, if it changed any."""

    run_id: int
    made: PassResult
    view: RunView
    future: Future[None] | None


class CommitBatcher:
    """Has the passes of one round written, in their order; `written` are those that were sent."""

    def __init__(self, outcomes: RunUpdateWriter, *, fences: Fences | None) -> None:
        self._outcomes = outcomes
        self._fences = fences
        self._waiting: list[tuple[PassResult, RunView, RunUpdate]] = []
        self._since = 0.0
        self.written: list[PendingCommit] = []

    def add(self, made: PassResult, view: RunView) -> None:
        """Have a pass written, sooner or later."""
        if made.outcome is None:
            self.written.append(PendingCommit(view.run.id, made, view, None))
            return
        now = time.monotonic()
        if not self._waiting:
            self._since = now
        self._waiting.append((made, view, replace(made.outcome, outlook=_outlook(view))))
        if len(self._waiting) >= MOST_TOGETHER or now - self._since >= LONGEST_SECONDS:
            self.send()

    def send(self) -> None:
        """Send all that wait."""
        waiting, self._waiting = self._waiting, []
        futures = commit_updates(self._outcomes, [outcome for _, _, outcome in waiting], fences=self._fences)
        for (made, view, outcome), future in zip(waiting, futures, strict=True):
            self.written.append(PendingCommit(outcome.run_id, made, view, future))


def commit_updates(
    outcomes: RunUpdateWriter, these: Sequence[RunUpdate], *, fences: Fences | None
) -> list[Future[None]]:
    """Have outcomes written, and return a future for each; each has the error if they could not even be sent."""
    try:
        return outcomes.commit(these, fences=fences)
    except Exception as error:  # noqa: BLE001 - the worker's edge: each of them is tried again
        failed: list[Future[None]] = [Future() for _ in these]
        for future in failed:
            future.set_exception(error)
        return failed


def _outlook(view: RunView) -> RunSnapshot:
    return RunSnapshot(
        gauge_ordinal=None if view.row is None else view.row.ordinal,
        expected_step_seconds=view.expected_step_seconds,
        advice=view.advice,
        proposed=view.proposed,
    )
