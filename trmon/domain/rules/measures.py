"""Measures: what a comparison takes of a signal - its newest value, or how that stands beside its past or another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from trmon.domain.rules.signal_reader import SignalReader
from trmon.domain.signals.windows import Baseline, SignalWindow


class RememberedHistory(Enum):
    """What a run must remember of a signal so that it can be measured."""

    NOTHING = "nothing"
    WINDOW = "window"
    BASELINE = "baseline"


class Measure(Protocol):
    """One way to make a number of a signal; NaN wherever the signal is missing or its past too short."""

    @property
    def keeps(self) -> RememberedHistory:
        """What must be remembered of the signal."""

    def of(self, signal: str, readout: SignalReader) -> float:
        """Return the number."""

    def told(self, signal: str) -> str:
        """Return what the number is called."""


@dataclass(frozen=True, slots=True)
class NewestValue:
    """The signal itself."""

    keeps = RememberedHistory.NOTHING

    def of(self, signal: str, readout: SignalReader) -> float:
        """Return the row's value."""
        return readout[signal]

    def told(self, signal: str) -> str:
        """Return its name."""
        return signal


NEWEST = NewestValue()


@dataclass(frozen=True, slots=True)
class RatioOfSignals:
    """The signal over another one of the same row."""

    to: str
    keeps = RememberedHistory.NOTHING

    def of(self, signal: str, readout: SignalReader) -> float:
        """Return the ratio: infinite over 0, NaN where both are 0."""
        value, base = readout[signal], readout[self.to]
        if base == 0:
            return math.copysign(math.inf, value) if value and not math.isnan(value) else math.nan
        return value / base

    def told(self, signal: str) -> str:
        """Return what is divided by what."""
        return f"{signal}/{self.to}"


@dataclass(frozen=True, slots=True)
class Growth:
    """The median of the signal's newest 5 values over that of 5 around some steps earlier."""

    over_steps: int
    keeps = RememberedHistory.WINDOW

    def of(self, signal: str, readout: SignalReader) -> float:
        """Return the growth, a ratio."""
        return _window(signal, readout).growth(over_steps=self.over_steps)

    def told(self, signal: str) -> str:
        """Return its name and span."""
        return f"growth of {signal} over {self.over_steps} steps"


@dataclass(frozen=True, slots=True)
class RelativeToMedian:
    """The signal over its rolling median."""

    over_steps: int
    keeps = RememberedHistory.WINDOW

    def of(self, signal: str, readout: SignalReader) -> float:
        """Return the ratio to the median of the steps before."""
        return _window(signal, readout).relative(over_steps=self.over_steps)

    def told(self, signal: str) -> str:
        """Return its name and span."""
        return f"{signal} over its median of {self.over_steps} steps"


@dataclass(frozen=True, slots=True)
class Slope:
    """The signal's least-squares slope per step."""

    over_steps: int
    keeps = RememberedHistory.WINDOW

    def of(self, signal: str, readout: SignalReader) -> float:
        """Return the slope, in units of the signal a step."""
        return _window(signal, readout).slope(over_steps=self.over_steps)

    def told(self, signal: str) -> str:
        """Return its name and span."""
        return f"slope of {signal} over {self.over_steps} steps"


@dataclass(frozen=True, slots=True)
class ZScore:
    """How many robust deviations (median, MAD) the signal lies above the run's own first 20 steps."""

    keeps = RememberedHistory.BASELINE

    def of(self, signal: str, readout: SignalReader) -> float:
        """Return the robust z-score."""
        return readout.memory.baselines.get(signal, Baseline()).zscore(readout[signal])

    def told(self, signal: str) -> str:
        """Return its name."""
        return f"z-score of {signal}"


def _window(signal: str, readout: SignalReader) -> SignalWindow:
    """Return the signal's past up to this row; an empty one where the row lacks it: nothing can be measured of that."""
    return SignalWindow() if math.isnan(readout[signal]) else readout.memory.windows.get(signal, SignalWindow())
