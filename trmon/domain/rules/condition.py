"""Conditions of rules: comparisons with thresholds, joined by any and all, and conditions on the run itself."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

import msgspec

from trmon.domain.rules.measures import NEWEST, Measure, RatioOfSignals
from trmon.domain.rules.signal_reader import SignalReader
from trmon.domain.runs.run import RunState


class Truth(Enum):
    """What is known of a condition; a missing or uncomputable signal makes it unknown, never false."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"


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
