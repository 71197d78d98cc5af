"""Rules: a condition, how long it must hold, how severe its alert is and what the alert says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import msgspec

from trmon.domain.collapse_risk.risk_signals import RISK
from trmon.domain.model.finding import Finding
from trmon.domain.model.identity import BatchKey
from trmon.domain.model.severity import Severity
from trmon.domain.rules.condition import (
    Condition,
    Evaluation,
    InState,
    Truth,
    TwoTrainersLive,
    When,
    comparisons_of,
    signals_of,
)
from trmon.domain.rules.measures import RememberedHistory
from trmon.domain.rules.signal_names import is_scalar
from trmon.domain.signals.run_features import SCALAR_FEATURES


class RowSelection(Enum):
    """Which rows of a step a rule reads: the gauge row, or every update (true if true for any of them)."""

    GAUGE = "gauge"
    EVERY_UPDATE = "every_update"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule that raises an alert: its condition, its durations, its severity and its texts.

    `for_steps` and `for_seconds` must both have passed. In the first `immune_steps` of a run, a rule over signals
    has no effect, and a rule over states is at most a warning. `summary` may use {signal}, {value}, {threshold}, {run},
    {step}, {error}, how the trainer ended, {drift}, the pair with most of the drift and its lag, and {drivers}, the
    inputs that raise the risk of a collapse most. `runbook` says in a line or two what to do; `meaning` is shown on the
    page of the rule only. `finding` is the finding that the rule shows; `is_symptom` is true if every finding may lead
    to it.
    """

    name: str
    when: When
    severity: Severity
    summary: str
    severity_when_enforcing: Severity | None = None
    reads: RowSelection = RowSelection.GAUGE
    for_steps: int = 1
    for_seconds: float = 0.0
    clear_for_steps: int = 1
    immune_steps: int = 20
    labels: dict[str, str] = field(default_factory=dict)
    runbook: str = ""
    meaning: str = ""
    finding: Finding | None = None
    is_symptom: bool = False

    @property
    def is_of_health(self) -> bool:
        """Whether alerts of the rule join the run's incident, which is told in their place."""
        return self.finding is not None or self.is_symptom

    @cached_property
    def is_prediction(self) -> bool:
        """Whether the rule reads the risk of a collapse: what it predicts cannot come once the run has finished."""
        return not isinstance(self.when, InState | TwoTrainersLive) and RISK in signals_of(self.when)

    @property
    def reads_batches(self) -> bool:
        """Whether the rule is over signals of batches; other rules are over the state of the run or its launches."""
        return not isinstance(self.when, InState | TwoTrainersLive)

    @cached_property
    def condition(self) -> Condition:
        """The condition over signals; only for rules that read batches."""
        assert not isinstance(self.when, InState | TwoTrainersLive)
        return self.when

    @cached_property
    def reads_scalars(self) -> bool:
        """Whether the rule reads a trainer scalar, or a feature of one, which may arrive after the step's batches."""
        return any(is_scalar(signal) or signal in SCALAR_FEATURES for signal in signals_of(self.when))

    @cached_property
    def remembered(self) -> Mapping[RememberedHistory, frozenset[str]]:
        """The signals whose history the rule needs, by the kind of history."""
        parts = list(comparisons_of(self.when))
        return {
            history: frozenset(part.signal for part in parts if part.measure.history is history)
            for history in RememberedHistory
        }

    def severity_in(self, mode: str) -> Severity:
        """Return the severity in a run of this mode, observe or enforce."""
        return (self.severity_when_enforcing or self.severity) if mode == "enforce" else self.severity

    def identity(self, run_id: int) -> str:
        """Return the alert's identity, stable across the episodes of this rule in a run."""
        labels = ",".join(f"{name}={value}" for name, value in sorted(self.labels.items()))
        return f"{run_id}/{self.name}/{labels}" if labels else f"{run_id}/{self.name}"

    @cached_property
    def names_drift(self) -> bool:
        """Whether the summary names the pair that dominates."""
        return "{drift}" in self.summary

    @cached_property
    def names_drivers(self) -> bool:
        """Whether the summary names what drives the risk of a collapse."""
        return "{drivers}" in self.summary

    def format_summary(
        self, evaluation: Evaluation, *, run: str, step: int, error: str = "", drift: str = "", drivers: str = ""
    ) -> str:
        """Return the summary with the values filled in."""
        return self.summary.format(
            signal=evaluation.signal,
            value=f"{evaluation.value:.4g}",
            threshold=f"{evaluation.threshold:.4g}",
            run=run,
            step=step,
            error=error,
            drift=drift,
            drivers=drivers,
        )


class RuleFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The evaluation of a rule over one step: `raised` by its thresholds, `lingering` by its clear thresholds.

    `steps` counts the steps of the run up to this one; `at` is the time at which the row was closed; `drift` names the
    pair that dominates, and `drivers` what drives the risk of a collapse, for rules whose summary does.
    """

    rule: str
    key: BatchKey
    at: float
    steps: int
    mode: str
    raised: Evaluation
    lingering: Evaluation
    drift: str = ""
    drivers: str = ""

    def worse_of(self, other: RuleFinding) -> RuleFinding:
        """Return the finding of a later update of the step, unless only this one is raised."""
        return self if self.raised.truth is Truth.TRUE and other.raised.truth is not Truth.TRUE else other
