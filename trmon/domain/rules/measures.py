"""Measures: the value of a signal that a comparison uses, such as its newest value, its growth or a ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from trmon.domain.rules.signal_reader import SignalReader
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
