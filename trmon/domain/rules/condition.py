"""Conditions of rules: comparisons with thresholds, joined by any and all, and conditions on the run itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

import msgspec

from trmon.domain.findings.catalogue import FindingSpec
from trmon.domain.rules.signal_reader import SignalReader
from trmon.domain.runs.run import RunState
from trmon.domain.signals.windows import Baseline, SignalWindow


class RememberedHistory(Enum):
    """The history of a signal that a measure needs."""

    NOTHING = "nothing"
    WINDOW = "window"
    BASELINE = "baseline"


class Measure(Protocol):
    """A value computed from a signal; NaN if the signal is missing or its history is too short."""

    @property
    def history(self) -> RememberedHistory:
        """The history of the signal that the measure needs."""

    def value(self, signal: str, reader: SignalReader) -> float:
        """Return the value."""

    def label(self, signal: str) -> str:
        """Return a description of the value for alert texts."""


@dataclass(frozen=True, slots=True)
class NewestValue:
    """The newest value of the signal."""

    history = RememberedHistory.NOTHING

    def value(self, signal: str, reader: SignalReader) -> float:
        """Return the value in the row."""
        return reader[signal]

    def label(self, signal: str) -> str:
        """Return its name."""
        return signal


NEWEST = NewestValue()


@dataclass(frozen=True, slots=True)
class RatioOfSignals:
    """The signal divided by another signal of the same row."""

    to: str
    history = RememberedHistory.NOTHING

    def value(self, signal: str, reader: SignalReader) -> float:
        """Return the ratio: infinite over 0, NaN where both are 0."""
        value, base = reader[signal], reader[self.to]
        if base == 0:
            return math.copysign(math.inf, value) if value and not math.isnan(value) else math.nan
        return value / base

    def label(self, signal: str) -> str:
        """Return the numerator and the denominator."""
        return f"{signal}/{self.to}"


@dataclass(frozen=True, slots=True)
class Growth:
    """The median of the newest 5 values of the signal over the median of 5 values some steps earlier."""

    over_steps: int
    history = RememberedHistory.WINDOW

    def value(self, signal: str, reader: SignalReader) -> float:
        """Return the growth as a ratio."""
        return _window(signal, reader).growth(over_steps=self.over_steps)

    def label(self, signal: str) -> str:
        """Return its name and span."""
        return f"growth of {signal} over {self.over_steps} steps"


@dataclass(frozen=True, slots=True)
class RelativeToMedian:
    """The signal divided by its rolling median."""

    over_steps: int
    history = RememberedHistory.WINDOW

    def value(self, signal: str, reader: SignalReader) -> float:
        """Return the ratio to the median of the previous steps."""
        return _window(signal, reader).relative(over_steps=self.over_steps)

    def label(self, signal: str) -> str:
        """Return its name and span."""
        return f"{signal} over its median of {self.over_steps} steps"


@dataclass(frozen=True, slots=True)
class Slope:
    """The least-squares slope of the signal per step."""

    over_steps: int
    history = RememberedHistory.WINDOW

    def value(self, signal: str, reader: SignalReader) -> float:
        """Return the slope, in units of the signal per step."""
        return _window(signal, reader).slope(over_steps=self.over_steps)

    def label(self, signal: str) -> str:
        """Return its name and span."""
        return f"slope of {signal} over {self.over_steps} steps"


@dataclass(frozen=True, slots=True)
class ZScore:
    """The robust z-score (median, MAD) of the signal against the first 20 steps of the run."""

    history = RememberedHistory.BASELINE

    def value(self, signal: str, reader: SignalReader) -> float:
        """Return the robust z-score."""
        return reader.memory.baselines.get(signal, Baseline()).zscore(reader[signal])

    def label(self, signal: str) -> str:
        """Return its name."""
        return f"z-score of {signal}"


def _window(signal: str, reader: SignalReader) -> SignalWindow:
    """Return the history of the signal up to this row; an empty window if the row lacks the signal."""
    return SignalWindow() if math.isnan(reader[signal]) else reader.memory.windows.get(signal, SignalWindow())


class Truth(Enum):
    """The truth of a condition: a missing signal, or one that cannot be computed, makes it unknown, never false."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


class Evaluation(msgspec.Struct, frozen=True):
    """The truth of a condition and the comparison that decided it: the signal, its value and the threshold."""

    truth: Truth
    signal: str
    value: float
    threshold: float


class ThresholdEvaluation(msgspec.Struct, frozen=True):
    """The evaluation of a condition by its thresholds (`raised`), and by its clear thresholds (`lingering`)."""

    raised: Evaluation
    lingering: Evaluation

    @property
    def can_raise(self) -> bool:
        """Whether an alert can begin or go on."""
        return self.raised.truth is Truth.TRUE or self.lingering.truth is Truth.TRUE


class Condition(Protocol):
    """A condition over the signals of one row."""

    def evaluate(self, reader: SignalReader) -> ThresholdEvaluation:
        """Return whether the condition holds by its thresholds and by its clear thresholds."""


class ThresholdSide(Enum):
    """The side on which a comparison is true."""

    ABOVE = "above"
    BELOW = "below"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A measure of a signal, or its distance from a point, strictly above or below a threshold.

    `clear` is the threshold that applies while the alert fires.
    """

    signal: str
    bound: ThresholdSide
    threshold: float
    clear: float
    away_from: float | None = None
    measure: Measure = NEWEST

    def evaluate(self, reader: SignalReader) -> ThresholdEvaluation:
        """Return whether the value is beyond the thresholds; NaN is unknown."""
        value, label = self.measure.value(self.signal, reader), self.measure.label(self.signal)
        if self.away_from is not None:
            value = abs(value - self.away_from)
        raised = Evaluation(self._truth(value, self.threshold), label, value, self.threshold)
        if self.clear == self.threshold:
            return ThresholdEvaluation(raised, raised)
        return ThresholdEvaluation(raised, Evaluation(self._truth(value, self.clear), label, value, self.clear))

    def _truth(self, value: float, limit: float) -> Truth:
        if value != value:
            return Truth.UNKNOWN
        is_beyond = value > limit if self.bound is ThresholdSide.ABOVE else value < limit
        return Truth.TRUE if is_beyond else Truth.FALSE


@dataclass(frozen=True, slots=True)
class SignalAbsent:
    """True if a signal is missing or cannot be computed, else false; never unknown."""

    signal: str

    def evaluate(self, reader: SignalReader) -> ThresholdEvaluation:
        """Return whether the signal is missing."""
        value = reader[self.signal]
        found = Evaluation(Truth.TRUE if math.isnan(value) else Truth.FALSE, self.signal, value, math.nan)
        return ThresholdEvaluation(found, found)


@dataclass(frozen=True, slots=True)
class AnyOf:
    """True if one part is true; unknown if none is true and one is unknown."""

    parts: tuple[Condition, ...]

    def evaluate(self, reader: SignalReader) -> ThresholdEvaluation:
        """Return the first true part, else the first unknown one, else the first."""
        return _decisive(self.parts, Truth.TRUE, reader)


@dataclass(frozen=True, slots=True)
class AllOf:
    """True if every part is true; false if one is false. The alert names the last part."""

    parts: tuple[Condition, ...]

    def evaluate(self, reader: SignalReader) -> ThresholdEvaluation:
        """Return the last false part, else the last unknown one, else the last."""
        return _decisive(reversed(self.parts), Truth.FALSE, reader)


@dataclass(frozen=True, slots=True)
class InState:
    """True while the run is in a state, which follows from messages and silence, not from batches."""

    state: RunState


@dataclass(frozen=True, slots=True)
class TwoTrainersLive:
    """True once two trainers have sent heartbeats under the name of the run for longer than some seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class FindingStands:
    """True while a finding of the judge stands, which folds rows and reads more than the newest one."""

    finding: FindingSpec


SignalCondition: TypeAlias = Comparison | SignalAbsent | AnyOf | AllOf
When: TypeAlias = SignalCondition | InState | TwoTrainersLive | FindingStands


def comparisons_of(when: object) -> Iterator[Comparison]:
    """Yield the comparisons in a condition, in their order."""
    match when:
        case AnyOf(parts) | AllOf(parts):
            for part in parts:
                yield from comparisons_of(part)
        case Comparison():
            yield when


def signals_of(when: object) -> Iterator[str]:
    """Yield the signals that a condition names."""
    match when:
        case AnyOf(parts) | AllOf(parts):
            for part in parts:
                yield from signals_of(part)
        case Comparison(measure=RatioOfSignals(to)):
            yield from (when.signal, to)
        case Comparison() | SignalAbsent():
            yield when.signal


def _decisive(parts: Iterable[Condition], truth: Truth, reader: SignalReader) -> ThresholdEvaluation:
    """Return the first part with this truth, else the first unknown one, else the first; later parts are skipped."""
    others = iter(parts)
    decided = next(others).evaluate(reader)
    raised, lingering = decided.raised, decided.lingering
    for part in others:
        if raised.truth is truth and lingering.truth is truth:
            break
        found = part.evaluate(reader)
        raised = _decisive_of(raised, found.raised, truth)
        lingering = _decisive_of(lingering, found.lingering, truth)
    return ThresholdEvaluation(raised, lingering)


def _decisive_of(known: Evaluation, new: Evaluation, truth: Truth) -> Evaluation:
    if known.truth is truth or new.truth is known.truth:
        return known
    return new if new.truth is truth or new.truth is Truth.UNKNOWN else known
