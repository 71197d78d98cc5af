"""The update that one pass of a worker over a run writes, in one transaction."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from trmon.domain.alerts.alert import Alert, AlertEvent
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.batches.batch import BatchRow, DecisionRow
from trmon.domain.budget.trainer_advice import Advice
from trmon.domain.policies import PolicyVersion
from trmon.domain.runs.run import RunEnding, RunState, RunWarning
from trmon_client.core.policies.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSnapshot:
    """Values after a pass: the batch that gauges show, the usual step time, the advice and the proposed policy."""

    gauge_ordinal: int | None = None
    expected_step_seconds: float | None = None
    advice: Advice | None = None
    proposed: Policy | None = None

    def document(self) -> dict[str, Any]:
        """Return it as a JSON-compatible document."""
        return {
            "gauge_ordinal": self.gauge_ordinal,
            "expected_step_seconds": self.expected_step_seconds,
            "advice": None if self.advice is None else self.advice.document(),
            "proposed": None if self.proposed is None else self.proposed.spec(),
        }

    @classmethod
    def of(cls, document: dict[str, Any]) -> RunSnapshot:
        """Return the snapshot in a document."""
        advice, proposed = document["advice"], document["proposed"]
        return cls(
            gauge_ordinal=document["gauge_ordinal"],
            expected_step_seconds=document["expected_step_seconds"],
            advice=None if advice is None else msgspec.convert(advice, Advice),
            proposed=None if proposed is None else Policy.parse(proposed),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """How far a worker has read: all reports and notices up to these ids are processed."""

    report_id: int = 0
    notice_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The pipeline state of a run after the batch `ordinal`, as bytes, with its STATE_VERSION."""

    ordinal: int
    version: int
    state: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RunProgress:
    """How far a worker has read a run, and the newest checkpoint of its state, if there is one.

    `moved_ordinal` is the ordinal of the newest batch of a run whose attempts have all moved to the lake.
    """

    frontier: Frontier = Frontier()
    checkpoint: Checkpoint | None = None
    moved_ordinal: int = 0


EDIT = "edit"
"""The kind of event for a change of a run, its policy or its adaptation that its worker did not make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event that is pushed to clients that follow the run: batch, alert, state, policy, ack or edit."""

    kind: str
    data: dict[str, Any]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUpdate:
    """All changes of one pass over one run."""

    run_id: int
    frontier: Frontier
    batches: tuple[BatchRow, ...] = ()
    decisions: tuple[DecisionRow, ...] = ()
    alerts: tuple[Alert, ...] = ()
    alert_events: tuple[AlertEvent, ...] = ()
    deliveries: tuple[Delivery, ...] = ()
    events: tuple[Event, ...] = ()
    policy: PolicyVersion | None = None
    state: RunState | None = None
    last_step: int | None = None
    attempt_id: int | None = None
    owner: str | None = None
    tags: tuple[str, ...] | None = None
    config: dict[str, Any] = field(default_factory=dict)
    mode: str | None = None
    ending: RunEnding | None = None
    warnings: tuple[RunWarning, ...] = ()
    checkpoint: Checkpoint | None = None
    outlook: RunSnapshot | None = None
