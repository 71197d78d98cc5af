"""Collects the changes of one pass, which are committed as one update."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from trmon.domain.alerts.alert import Alert, AlertEvent
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.batches.batch import BatchRow, DecisionRow, QuarantinePart
from trmon.domain.model.identity import BatchKey
from trmon.domain.pipeline.stages.publish import BatchChanges
from trmon.domain.state.run_update import Checkpoint, Event, Frontier, RunUpdate


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
