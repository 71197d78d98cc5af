"""The changes of a pass: collected, checkpointed when due, and committed with other passes in one request."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

from trmon.domain.alerts.alert import Alert, AlertEvent
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.batches.batch import BatchRow, DecisionRow, QuarantinePart
from trmon.domain.identity import BatchKey
from trmon.domain.ownership import Fences
from trmon.domain.pipeline.publish import BatchChanges, Checkpoint, Event, Frontier, RunUpdate, RunView

CHECKPOINT_BATCHES = 64
CHECKPOINT_SECONDS = 30.0
LEAST_CHECKPOINT_BATCHES = 8
"""Fewer rows are replayed in less time than a checkpoint after each step takes, where steps are far apart."""
MAX_UPDATES = 32
MAX_WAIT_SECONDS = 0.05
"""How long an update waits for those of later passes, beyond the pass that is running."""


@dataclass(slots=True)
class PassTally:
    """The counts of a pass; `close_lags_seconds`: from each batch's newest report to its close."""

    close_lags_seconds: list[float] = field(default_factory=list)
    mismatches: int = 0
    unreplayed_reports: int = 0
    late_reports: int = 0
    unplaced_scalars: int = 0
    quarantined: Counter[QuarantinePart] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class PassChanges:
    """The changes of a pass at `now`, the last of each kind: a batch that is revised in the pass is written once."""

    now: float
    rows: dict[BatchKey, BatchRow] = field(default_factory=dict)
    decisions: dict[tuple[BatchKey, str], DecisionRow] = field(default_factory=dict)
    alerts: dict[tuple[str, int, int, int | None], Alert] = field(default_factory=dict)
    alert_events: list[AlertEvent] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    run: dict[str, Any] = field(default_factory=dict)
    tally: PassTally = field(default_factory=PassTally)

    def add(self, published: BatchChanges) -> None:
        """Add the output of a batch or of a change of state."""
        if published.row is not None:
            self.rows[published.row.key] = published.row
        self.decisions |= {(decision.key, decision.policy_hash): decision for decision in published.decisions}
        for alert in published.alerts:
            self.alerts[alert.identity, alert.attempt_id, alert.step, alert.update] = alert
        self.alert_events += published.alert_events
        self.deliveries += published.deliveries
        self.events += published.events
        self.tally.unreplayed_reports += published.unreplayed

    def set_run_fields(self, **fields: Any) -> None:
        """Set new values of the run's own fields, by their names in RunUpdate."""
        self.run |= fields

    def __bool__(self) -> bool:
        """Whether there is anything to write; decisions, alert events and deliveries never come alone."""
        return bool(self.rows or self.alerts or self.run or self.events)

    def update(self, view: RunView, *, frontier: Frontier, checkpoint: Checkpoint | None) -> RunUpdate:
        """Return all changes and the view's outlook as one update, batches in the order in which they were folded."""
        return RunUpdate(
            run_id=view.run.id,
            frontier=frontier,
            batches=tuple(sorted(self.rows.values(), key=lambda row: row.ordinal)),
            decisions=tuple(self.decisions.values()),
            alerts=tuple(self.alerts.values()),
            alert_events=tuple(self.alert_events),
            deliveries=tuple(self.deliveries),
            events=tuple(self.events),
            checkpoint=checkpoint,
            outlook=view.document(),
            **self.run,
        )


@dataclass(slots=True, kw_only=True)
class PassResult:
    """The result of a pass: what is to be written, if anything, and the run's view after it.

    `has_more`: whether more messages are unread; `sent_at`: when the newest report or scalars that it read were sent,
    None if it read none. `commit` is the future of the update, once it is sent.
    """

    update: RunUpdate | None
    view: RunView
    has_more: bool
    tally: PassTally
    sent_at: float | None = None
    commit: Future[None] | None = None


def is_checkpoint_due(unsaved_batches: int, *, seconds: float, is_done: bool) -> bool:
    """Whether the next checkpoint is due.

    Args: seconds: since the last one; is_done: the run has ended and nothing of it is pending.
    """
    is_late = unsaved_batches >= LEAST_CHECKPOINT_BATCHES and seconds >= CHECKPOINT_SECONDS
    return unsaved_batches >= CHECKPOINT_BATCHES or is_late or (unsaved_batches > 0 and is_done)


class RunUpdateWriter(Protocol):
    """Stores the updates of a worker."""

    def commit(self, updates: Sequence[RunUpdate], *, fences: Fences | None = None) -> list[Future[None]]:
        """Write updates, each in one transaction; each future completes when its update is on disk, or raises Fenced.

        Args: fences: the fencing tokens of the slots that the worker holds; None if there is only one worker.
        """


class CommitBatcher:
    """Commits the passes of one round in their order; `sent` lists those that were sent, or have nothing to write."""

    def __init__(self, writer: RunUpdateWriter, *, fences: Fences | None) -> None:
        self._writer = writer
        self._fences = fences
        self._waiting: list[tuple[PassResult, RunUpdate]] = []
        self._waiting_since = 0.0
        self.sent: list[PassResult] = []

    def add(self, result: PassResult) -> None:
        """Add a pass, and send the waiting ones if they are many or old."""
        if result.update is None:
            self.sent.append(result)
            return
        now = time.monotonic()
        if not self._waiting:
            self._waiting_since = now
        self._waiting.append((result, result.update))
        if len(self._waiting) >= MAX_UPDATES or now - self._waiting_since >= MAX_WAIT_SECONDS:
            self.send()

    def send(self) -> None:
        """Send all waiting updates."""
        waiting, self._waiting = self._waiting, []
        futures = commit_updates(self._writer, [update for _, update in waiting], fences=self._fences)
        for (result, _), future in zip(waiting, futures, strict=True):
            result.commit = future
            self.sent.append(result)


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
