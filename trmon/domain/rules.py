"""Rules: a condition over a batch's signals or a run's state, how long it must hold, and what to say then."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeAlias

from trmon.domain.alerts import Severity
from trmon.domain.identity import BatchKey
from trmon.domain.runs import RunState
from trmon_client.core.schema import Pair


class Truth(Enum):
    """What is known of a condition; a missing or uncomputable signal makes it unknown, never false."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


class Reads(Enum):
    """Which rows of a step a rule reads: its gauge row, or every update (true if it is true of any)."""

    GAUGE = "gauge"
    EVERY_UPDATE = "every_update"


@dataclass(frozen=True, slots=True)
class Readout:
    """The numbers that conditions read; a name without prefix means the mismatch pair, else the primary one."""

    numbers: Mapping[str, float]
    primary: Pair

    def __getitem__(self, name: str) -> float:
        """Return a number, NaN where it is missing."""
        for full in (name, f"mismatch_{name}", f"{self.primary}_{name}"):
            if full in self.numbers:
                return self.numbers[full]
        return math.nan


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Whether a condition is true, and the comparison that decided: its signal, value and threshold."""

    truth: Truth
    signal: str
    value: float
    threshold: float


class Condition(Protocol):
    """Anything that can be asked of a readout; `lingering` asks with the clear thresholds."""

    def evaluate(self, readout: Readout, *, lingering: bool) -> Evaluation:
        """Return whether it holds and why."""


class Bound(Enum):
    """The side on which a comparison is true."""

    ABOVE = "above"
    BELOW = "below"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A signal, or its distance from a point, strictly above or below a threshold; `clear` once it has fired."""

    signal: str
    bound: Bound
    threshold: float
    clear: float
    away_from: float | None = None

    def evaluate(self, readout: Readout, *, lingering: bool) -> Evaluation:
        """Return whether the signal lies beyond its threshold; NaN is unknown."""
        value = readout[self.signal]
        if self.away_from is not None:
            value = abs(value - self.away_from)
        limit = self.clear if lingering else self.threshold
        if math.isnan(value):
            return Evaluation(Truth.UNKNOWN, self.signal, value, limit)
        beyond = value > limit if self.bound is Bound.ABOVE else value < limit
        return Evaluation(Truth.TRUE if beyond else Truth.FALSE, self.signal, value, limit)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True if one part is; unknown if none is true and one is unknown."""

    parts: tuple[Condition, ...]

    def evaluate(self, readout: Readout, *, lingering: bool) -> Evaluation:
        """Return the first true part, else the first unknown one, else the first."""
        found = [part.evaluate(readout, lingering=lingering) for part in self.parts]
        return _first(found, Truth.TRUE, Truth.UNKNOWN)


@dataclass(frozen=True, slots=True)
class AllOf:
    """True if every part is; false if one is false. Its last part is the one it speaks of."""

    parts: tuple[Condition, ...]

    def evaluate(self, readout: Readout, *, lingering: bool) -> Evaluation:
        """Return the last false part, else the last unknown one, else the last."""
        found = [part.evaluate(readout, lingering=lingering) for part in reversed(self.parts)]
        return _first(found, Truth.FALSE, Truth.UNKNOWN)


@dataclass(frozen=True, slots=True)
class InState:
    """True while a run is in a state; read from the clock and the trainer's word, not from batches."""

    state: RunState


When: TypeAlias = Comparison | AnyOf | AllOf | InState


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What makes an alert: a condition, how long it must hold or be clear, how severe it is and what it says.

    `for_steps` and `for_seconds` must both have passed; `immune_steps` are a run's first steps, in which a rule
    over signals says nothing and one over states warns at most. `summary` may name {signal}, {value},
    {threshold}, {run} and {step}.
    """

    name: str
    when: When
    severity: Severity
    summary: str
    severity_when_enforcing: Severity | None = None
    reads: Reads = Reads.GAUGE
    for_steps: int = 1
    for_seconds: float = 0.0
    clear_for_steps: int = 1
    immune_steps: int = 20
    labels: dict[str, str] = field(default_factory=dict)
    runbook: str = ""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
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

    def or_worse(self, other: Finding) -> Finding:
        """Return the other one, of a later update of the step, unless this one is raised and it is not."""
        return self if self.raised.truth is Truth.TRUE and other.raised.truth is not Truth.TRUE else other


def _first(found: list[Evaluation], *truths: Truth) -> Evaluation:
    for truth in truths:
        for evaluation in found:
            if evaluation.truth is truth:
                return evaluation
    return found[0]
