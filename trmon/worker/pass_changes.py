"""What a pass changes: collected, checkpointed when due, and committed with other passes in one request."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import structs

from trmon.domain.alerts.alert import Alert, AlertEvent
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.batches.batch import BatchRow, DecisionRow, QuarantinePart
from trmon.domain.identity import BatchKey
from trmon.domain.pipeline.publish import BatchChanges
from trmon.domain.pipeline.run_update import Checkpoint, Event, Frontier, RunSnapshot, RunUpdate
from trmon.domain.pipeline.state import STATE_VERSION, PipelineState
from trmon.domain.ports import Fences, RunUpdateWriter
from trmon.fleet.views import RunView

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

    def update(self, run_id: int, *, frontier: Frontier, checkpoint: Checkpoint | None) -> RunUpdate:
        """Return all changes as one update, batches in the order in which they were folded."""
        return RunUpdate(
            run_id=run_id,
            frontier=frontier,
            batches=tuple(sorted(self.rows.values(), key=lambda row: row.ordinal)),
            decisions=tuple(self.decisions.values()),
            alerts=tuple(self.alerts.values()),
            alert_events=tuple(self.alert_events),
            deliveries=tuple(self.deliveries),
            events=tuple(self.events),
            checkpoint=checkpoint,
            **self.run,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """The result of a pass: what is to be written, if anything, and whether more messages are unread."""

    update: RunUpdate | None
    has_more: bool
    tally: PassTally


class CheckpointSchedule:
    """Remembers the batch and the time of a run's newest checkpoint."""

    def __init__(self, *, ordinal: int, now: float) -> None:
        self._ordinal = ordinal
        self._at = now

    def unsaved_batches(self, pipeline_state: PipelineState) -> int:
        """Return how many batches the state contains beyond the newest checkpoint."""
        return pipeline_state.ordinal - self._ordinal

    def is_due(self, pipeline_state: PipelineState, *, now: float, is_done: bool) -> bool:
        """Whether the next checkpoint is due. Args: is_done: the run has ended and nothing of it is pending."""
        unsaved = self.unsaved_batches(pipeline_state)
        is_late = unsaved >= LEAST_CHECKPOINT_BATCHES and now - self._at >= CHECKPOINT_SECONDS
        return unsaved >= CHECKPOINT_BATCHES or is_late or (unsaved > 0 and is_done)

    def record(self, pipeline_state: PipelineState, *, now: float) -> None:
        """Remember a checkpoint of this state."""
        self._ordinal, self._at = pipeline_state.ordinal, now


def checkpoint_of(
    pipeline_state: PipelineState, *, reread_notices_after: int, liveness_report_id: int, silent_since: float
) -> Checkpoint:
    """Return a checkpoint of a state.

    Args: reread_notices_after: the notice after which a restart reads again; liveness_report_id: the newest report that
    the run's state reflects; silent_since: when the newest message came.
    """
    known = {
        "reread_notices_after": reread_notices_after,
        "liveness_report_id": liveness_report_id,
        "silent_since": silent_since,
    }
    state = structs.replace(pipeline_state, **known).to_bytes()
    return Checkpoint(ordinal=pipeline_state.ordinal, version=STATE_VERSION, state=state)


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
