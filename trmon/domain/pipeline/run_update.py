"""The update that one pass of a worker over a run writes, in one transaction, and the view of the run after it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import msgspec

from trmon.domain.alerts.alert import Alert, AlertEvent
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.batches.batch import BatchRow, DecisionRow
from trmon.domain.findings.verdict import Judgement
from trmon.domain.health.run_summary import RunSummary
from trmon.domain.policies import PolicyVersion
from trmon.domain.runs.run import Run, RunEnding, RunState, RunWarning
from trmon.domain.signals.derived_signals import SHADOW_PREFIX
from trmon_client.api.answers import convert_answer
from trmon_client.api.budget import AdviceInfo

BOUNDS: Mapping[str, str] = {"adaptive": "bound_adaptive", "trpo": "bound_trpo"}


def judgement_in(outlook: Mapping[str, Any]) -> Judgement | None:
    """Return the judgement in what a run's worker last stored of it; None before its first judged step."""
    stored = outlook.get("judgement")
    return None if stored is None else msgspec.convert(stored, Judgement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What a run's worker last stored of it, for those who show the run; empty before it has.

    `judgement` is that of its newest judged step, None before one.
    """

    judgement: Judgement | None = None
    summary: RunSummary = field(default_factory=RunSummary)
    expected_step_seconds: float | None = None

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Outlook:
        """Return the outlook in a stored document."""
        return cls(
            judgement=judgement_in(stored),
            summary=msgspec.convert(stored.get("summary") or {}, RunSummary),
            expected_step_seconds=stored.get("expected_step_seconds"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView(Outlook):
    """The values of one run at a time; `row` is its newest gauge row, None before the first batch closes."""

    run: Run
    row: BatchRow | None
    policy: PolicyVersion
    alerts: tuple[Alert, ...]
    updated_at: float
    advice: AdviceInfo | None = None

    @classmethod
    def of(cls, outlook: Mapping[str, Any], **others: Any) -> RunView:
        """Return the view of a run whose worker has stored an outlook, empty before it has. Args: others: fields."""
        advice, known = outlook.get("advice"), Outlook.read(outlook)
        return cls(
            advice=None if advice is None else convert_answer(advice, AdviceInfo),
            **{one.name: getattr(known, one.name) for one in fields(Outlook)},
            **others,
        )

    def document(self) -> dict[str, Any]:
        """Return what only the worker knows as a JSON-compatible document, and the ordinal of the row."""
        return {
            "gauge_ordinal": None if self.row is None else self.row.ordinal,
            "expected_step_seconds": self.expected_step_seconds,
            "advice": None if self.advice is None else self.advice.document(),
            "judgement": None if self.judgement is None else msgspec.to_builtins(self.judgement),
            "summary": msgspec.to_builtins(self.summary),
        }

    @property
    def signals(self) -> Mapping[str, float]:
        """The gauge row's signals by full name."""
        return self.row.signals if self.row else {}

    @property
    def scalars(self) -> Mapping[str, float]:
        """The trainer's scalars in the gauge row."""
        return self.row.scalars if self.row else {}

    @property
    def mask_rates(self) -> Mapping[str, float]:
        """The share of rejected sequences by policy name: the active policy and each shadow."""
        rates = self.signals.items()
        shadows = {name.removeprefix(SHADOW_PREFIX): rate for name, rate in rates if name.startswith(SHADOW_PREFIX)}
        active = self.signals.get("mask_rate")
        return shadows if active is None else {**shadows, self.policy.policy.name: active}

    @property
    def bounds(self) -> Mapping[str, float]:
        """The error bounds by kind; NaN where they cannot be asserted."""
        return {kind: self.signals[name] for kind, name in BOUNDS.items() if name in self.signals}


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
    warnings: tuple[RunWarning, ...] | None = None
    checkpoint: Checkpoint | None = None
    outlook: dict[str, Any] | None = None
