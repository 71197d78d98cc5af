"""Rules: a condition over a batch's signals or a run's state, how long it must hold, and what to say then."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Protocol, TypeAlias

import msgspec

from trmon.domain.model.identity import BatchKey
from trmon.domain.model.severity import Severity
from trmon.domain.rules.measures import NEWEST, Measure, RatioOfSignals, RememberedHistory
from trmon.domain.rules.signal_names import is_scalar
from trmon.domain.rules.signal_reader import SignalReader
from trmon.domain.runs.run import RunState


class Truth(Enum):
    """What is known of a condition; a missing or uncomputable signal makes it unknown, never false."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


class RowSelection(Enum):
    """Which rows of a step a rule reads: its gauge row, or every update (true if it is true of any)."""

    GAUGE = "gauge"
    EVERY_UPDATE = "every_update"


class Evaluation(msgspec.Struct, frozen=True):
    """Whether a condition is true, and the comparison that decided: what it measured, the value and the threshold."""

    truth: Truth
    signal: str
    value: float
    threshold: float


class ThresholdEvaluation(msgspec.Struct, frozen=True):
    """What a condition makes of a readout: by its thresholds, and, lingering, by the ones behind which it is clear."""

    raised: Evaluation
    lingering: Evaluation


class Condition(Protocol):
    """Anything that can be asked of a readout."""

    def evaluate(self, readout: SignalReader) -> ThresholdEvaluation:
        """Return whether it holds, and still holds, and why."""


class ThresholdSide(Enum):
    """The side on which a comparison is true."""

    ABOVE = "above"
    BELOW = "below"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A measure of a signal, or its distance from a point, strictly above or below a threshold.

    `clear` is the threshold once it has fired.
    """

    signal: str
    bound: ThresholdSide
    threshold: float
    clear: float
    away_from: float | None = None
    measure: Measure = NEWEST

    def evaluate(self, readout: SignalReader) -> ThresholdEvaluation:
        """Return whether the measure lies beyond its thresholds; NaN is unknown."""
        value, told = self.measure.of(self.signal, readout), self.measure.told(self.signal)
        if self.away_from is not None:
            value = abs(value - self.away_from)
        raised = self._beside(self.threshold, value, told)
        return ThresholdEvaluation(
            raised, raised if self.clear == self.threshold else self._beside(self.clear, value, told)
        )

    def _beside(self, limit: float, value: float, told: str) -> Evaluation:
        if math.isnan(value):
            return Evaluation(Truth.UNKNOWN, told, value, limit)
        beyond = value > limit if self.bound is ThresholdSide.ABOVE else value < limit
        return Evaluation(Truth.TRUE if beyond else Truth.FALSE, told, value, limit)


@dataclass(frozen=True, slots=True)
class SignalAbsent:
    """True where a signal is missing or cannot be computed, false where it is there; never unknown."""

    signal: str

    def evaluate(self, readout: SignalReader) -> ThresholdEvaluation:
        """Return whether the signal is missing."""
        value = readout[self.signal]
        found = Evaluation(Truth.TRUE if math.isnan(value) else Truth.FALSE, self.signal, value, math.nan)
        return ThresholdEvaluation(found, found)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True if one part is; unknown if none is true and one is unknown."""

    parts: tuple[Condition, ...]

    def evaluate(self, readout: SignalReader) -> ThresholdEvaluation:
        """Return the first true part, else the first unknown one, else the first."""
        return _decisive(self.parts, Truth.TRUE, readout)


@dataclass(frozen=True, slots=True)
class AllOf:
    """True if every part is; false if one is false. Its last part is the one it speaks of."""

    parts: tuple[Condition, ...]

    def evaluate(self, readout: SignalReader) -> ThresholdEvaluation:
        """Return the last false part, else the last unknown one, else the last."""
        return _decisive(reversed(self.parts), Truth.FALSE, readout)


@dataclass(frozen=True, slots=True)
class InState:
    """True while a run is in a state; read from the clock and the trainer's word, not from batches."""

    state: RunState


@dataclass(frozen=True, slots=True)
class TwoTrainersLive:
    """True while two trainers have lived under the run's name for longer than some seconds, by their heartbeats."""

    seconds: float


When: TypeAlias = Comparison | SignalAbsent | AnyOf | AllOf | InState | TwoTrainersLive


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


def comparisons_of(when: object) -> Iterator[Comparison]:
    """Yield the comparisons in a condition, in the order in which they are written."""
    match when:
        case AnyOf(parts) | AllOf(parts):
            for part in parts:
                yield from comparisons_of(part)
        case Comparison():
            yield when


def signals_of(when: object) -> Iterator[str]:
    """Yield every signal that a condition names."""
    match when:
        case AnyOf(parts) | AllOf(parts):
            for part in parts:
                yield from signals_of(part)
        case Comparison(measure=RatioOfSignals(to)):
            yield from (when.signal, to)
        case Comparison() | SignalAbsent():
            yield when.signal


def _decisive(parts: Iterable[Condition], truth: Truth, readout: SignalReader) -> ThresholdEvaluation:
    """Return the first part of this truth, behind which none counts, else the first unknown one, else the first."""
    first, *others = parts
    decided = first.evaluate(readout)
    for part in others:
        if decided.raised.truth is truth and decided.lingering.truth is truth:
            break
        found = part.evaluate(readout)
        decided = ThresholdEvaluation(
            _decisive_of(decided.raised, found.raised, truth), _decisive_of(decided.lingering, found.lingering, truth)
        )
    return decided


def _decisive_of(known: Evaluation, new: Evaluation, truth: Truth) -> Evaluation:
    if known.truth is truth or new.truth is known.truth:
        return known
    return new if new.truth is truth or new.truth is Truth.UNKNOWN else known
