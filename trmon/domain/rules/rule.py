"""Rules: a condition, how long it must hold, how severe its alert is and what the alert says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

import msgspec

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


class RowSelection(Enum):
    """Which rows of a step a rule reads: its gauge row, or every update (true if it is true of any)."""

    GAUGE = "gauge"
    EVERY_UPDATE = "every_update"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What makes an alert: a condition, how long it must hold or be clear, how severe it is and what it says.

    `for_steps` and `for_seconds` must both have passed; `immune_steps` are a run's first steps, in which a rule
    over signals says nothing and one over states warns at most. `summary` may name {signal}, {value},
    {threshold}, {run} and {step}. `runbook` is what to do, in a line or two; `meaning` is for its page alone.
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

    @property
    def reads_batches(self) -> bool:
        """Whether it is over signals; the others are over the run itself and judged by the clock and its trainers."""
        return not isinstance(self.when, InState | TwoTrainersLive)

    @cached_property
    def condition(self) -> Condition:
        """What it asks of a batch's signals; only of rules that read batches."""
        assert not isinstance(self.when, InState | TwoTrainersLive)
        return self.when

    @cached_property
    def reads_scalars(self) -> bool:
        """Whether it reads a number of the trainer's own, which may come after the step's batches."""
        return any(is_scalar(signal) for signal in signals_of(self.when))

    @cached_property
    def kept(self) -> Mapping[RememberedHistory, frozenset[str]]:
        """The signals of which it needs something to be remembered, by what that is."""
        parts = list(comparisons_of(self.when))
        return {
            keeps: frozenset(part.signal for part in parts if part.measure.keeps is keeps)
            for keeps in RememberedHistory
        }

    def severity_in(self, mode: str) -> Severity:
        """Return how severe it is in a run of this mode, observe or enforce."""
        return (self.severity_when_enforcing or self.severity) if mode == "enforce" else self.severity

    def identity(self, run_id: int) -> str:
        """Return what every episode of this rule in a run, with these labels, is known by."""
        labels = ",".join(f"{name}={value}" for name, value in sorted(self.labels.items()))
        return f"{run_id}/{self.name}/{labels}" if labels else f"{run_id}/{self.name}"

    def say(self, evaluation: Evaluation, *, run: str, step: int) -> str:
        """Return the summary with the numbers in it."""
        return self.summary.format(
            signal=evaluation.signal,
            value=f"{evaluation.value:.4g}",
            threshold=f"{evaluation.threshold:.4g}",
            run=run,
            step=step,
        )


class RuleFinding(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule says of one step: raised (beyond its threshold), or lingering (not yet beyond its clear one).

    `steps` counts the run's steps up to this one; `at` is when the row it read was closed.
    """

    rule: str
    key: BatchKey
    at: float
    steps: int
    mode: str
    raised: Evaluation
    lingering: Evaluation

    def or_worse(self, other: RuleFinding) -> RuleFinding:
        """Return the other one, of a later update of the step, unless this one is raised and it is not."""
        return self if self.raised.truth is Truth.TRUE and other.raised.truth is not Truth.TRUE else other
