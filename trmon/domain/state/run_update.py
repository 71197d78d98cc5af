"""What one pass of a worker over a run changes: written in one transaction, or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from trmon.domain.alerts.alert import Alert, AlertEvent
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.batches.batch import BatchRow, DecisionRow
from trmon.domain.policies.policy_version import PolicyVersion
from trmon.domain.runs.run import RunState
from trmon.domain.state.run_snapshot import RunSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """How far a worker has got: every report and notice up to these ids is in a closed batch or done with."""

    report_id: int = 0
    notice_id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A run's state as bytes, true after the batch `ordinal`, written by the code of `version`."""

    ordinal: int
    version: int
    state: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """How far a worker has got with a run, and the newest checkpoint of its state, if there is one."""

    frontier: Frontier = Frontier()
    checkpoint: Checkpoint | None = None


EDIT = "edit"
"""The kind of event that says that somebody beside its worker has changed a run, its policy or its adaptation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something a watcher of the run hears at once: batch, alert, state, policy, ack, edit."""

    kind: str
    data: dict[str, Any]
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunUpdate:
    """Everything one pass over one run writes."""

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
    checkpoint: Checkpoint | None = None
    outlook: RunSnapshot | None = None
