"""Conditions of rules, and the numbers that they read: comparisons with thresholds, joined by any and all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from typing import Literal, TypeAlias

import msgspec

from trmon.domain.findings.catalogue import FindingSpec
from trmon.domain.runs.run import RunState
from trmon.domain.signals.derived_signals import DERIVED, SHADOW_PREFIX
from trmon.domain.signals.windows import Baseline, SignalWindow
from trmon_client.core.column_schema import PAIRS, Pair
from trmon_client.core.signals.catalogue import SIGNALS, TRAINER_SCALARS

SCALAR_PREFIX = "scalar:"
NAME_CACHE_SIZE = 1024


class SignalMemory(msgspec.Struct, frozen=True):
    """The history of the signals that rules measure over time, by the name that the rules use."""

    windows: dict[str, SignalWindow] = {}
    baselines: dict[str, Baseline] = {}

    def updated(
        self, reader: SignalReader, *, step: int, windows: Iterable[str], baselines: Iterable[str]
    ) -> SignalMemory:
        """Return the memory after a row; signals that no rule needs any more are dropped."""
        return SignalMemory(
            windows={name: self.windows.get(name, SignalWindow()).with_value(step, reader[name]) for name in windows},
            baselines={name: self.baselines.get(name, Baseline()).with_value(step, reader[name]) for name in baselines},
        )


class SignalReader(msgspec.Struct, frozen=True):
    """The numbers that conditions read; a name without a pair prefix means the mismatch pair, else the primary one."""

    numbers: Mapping[str, float]
    primary: Pair | None
    memory: SignalMemory = SignalMemory()

    def __getitem__(self, name: str) -> float:
        found = self.numbers.get(name)
        if found is not None:
            return found
        for full in _full_names(name, self.primary):
            if full in self.numbers:
                return self.numbers[full]
        return math.nan


@lru_cache(NAME_CACHE_SIZE)
def _full_names(name: str, primary: Pair | None) -> tuple[str, ...]:
    name = name.removeprefix(SCALAR_PREFIX)
    of_pair = (f"mismatch_{name}",) if primary is None else (f"mismatch_{name}", f"{primary}_{name}")
    return name, *of_pair


def is_known_signal(name: str) -> bool:
    """Whether rules may read a name: a signal with or without its pair, or a trainer scalar."""
    return name in signal_names() or is_scalar(name) or (name.startswith(SHADOW_PREFIX) and name != SHADOW_PREFIX)


def is_scalar(name: str) -> bool:
    """Whether a name is a trainer scalar."""
    return name in TRAINER_SCALARS or (name.startswith(SCALAR_PREFIX) and name != SCALAR_PREFIX)


@cache
def series_names() -> frozenset[str]:
    """Return the full names of all signals, and the scalars with a common name: any run may come to hold them."""
    return frozenset((*SIGNALS, *DERIVED, *TRAINER_SCALARS))


@cache
def signal_names() -> frozenset[str]:
    """Return the names that rules may read: signals with and without their pair, and scalars with a common name."""
    stems = {spec.stem for spec in SIGNALS.values()}
    derived = {name.removeprefix(f"{pair}_") for name in DERIVED for pair in PAIRS}
    return frozenset(series_names() | stems | derived)


SpanKind = Literal["growth", "relative", "slope"]
_LABELS = {
    "ratio": "{signal}/{to}",
    "zscore": "z-score of {signal}",
    "growth": "growth of {signal} over {over} steps",
    "relative": "{signal} over its median of {over} steps",
    "slope": "slope of {signal} over {over} steps",
}


@dataclass(frozen=True, slots=True)
class Measure:
    """A value computed from a signal, by its key in rule files; NaN if the signal is missing or its history too short.

    signal: its newest value; ratio: that divided by `to` in the same row; zscore: the robust z-score against the first
    20 steps; growth, relative, slope: of the newest `over` steps, see SignalWindow.
    """

    kind: Literal["signal", "ratio", "zscore"] | SpanKind = "signal"
    over: int = 0
    to: str = ""

    def value(self, signal: str, reader: SignalReader) -> float:
        """Return the value; a ratio is infinite over 0, and NaN where both are 0."""
        value = reader[signal]
        if self.kind == "signal":
            return value
        window = SignalWindow() if math.isnan(value) else reader.memory.windows.get(signal, SignalWindow())
        match self.kind:
            case "ratio":
                base = reader[self.to]
                over_zero = math.copysign(math.inf, value) if value and not math.isnan(value) else math.nan
                return over_zero if base == 0 else value / base
            case "zscore":
                return reader.memory.baselines.get(signal, Baseline()).zscore(value)
            case "growth":
                return window.growth(over_steps=self.over)
            case "relative":
                return window.relative(over_steps=self.over)
            case "slope":
                return window.slope(over_steps=self.over)

    def label(self, signal: str) -> str:
        """Return a description of the value for alert texts."""
        form = _LABELS.get(self.kind)
        return signal if form is None else form.format(signal=signal, to=self.to, over=self.over)


NEWEST = Measure()


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

    parts: tuple[SignalCondition, ...]

    def evaluate(self, reader: SignalReader) -> ThresholdEvaluation:
        """Return the first true part, else the first unknown one, else the first."""
        return _decisive(self.parts, Truth.TRUE, reader)


@dataclass(frozen=True, slots=True)
class AllOf:
    """True if every part is true; false if one is false. The alert names the last part."""

    parts: tuple[SignalCondition, ...]

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
        case Comparison() | SignalAbsent():
            yield when.signal
            if isinstance(when, Comparison) and when.measure.to:
                yield when.measure.to


def _decisive(parts: Iterable[SignalCondition], truth: Truth, reader: SignalReader) -> ThresholdEvaluation:
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
