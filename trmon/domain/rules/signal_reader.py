"""Readout: the numbers of one row as rules read them, beside what the run remembers of its past."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec

from trmon.domain.signals.windows import Baseline, SignalWindow
from trmon_client.core.columns.schema import Pair

SCALAR_PREFIX = "scalar:"
"""Before a trainer's own number, in rules."""
REMEMBERED_NAMES = 1024


class SignalMemory(msgspec.Struct, frozen=True):
    """The past of those signals that rules measure over time, each by the name that the rules give it."""

    windows: dict[str, SignalWindow] = {}
    baselines: dict[str, Baseline] = {}

    def after(
        self, readout: SignalReader, *, step: int, windows: Iterable[str], baselines: Iterable[str]
    ) -> SignalMemory:
        """Return the memory with a gauge row's numbers; what no rule asks for any more is forgotten."""
        return SignalMemory(
            windows={name: self.windows.get(name, SignalWindow()).put(step, readout[name]) for name in windows},
            baselines={name: self.baselines.get(name, Baseline()).put(step, readout[name]) for name in baselines},
        )


class SignalReader(msgspec.Struct, frozen=True):
    """The numbers that conditions read; a name without prefix means the mismatch pair, else the primary one."""

    numbers: Mapping[str, float]
    primary: Pair
    memory: SignalMemory = SignalMemory()

    def __getitem__(self, name: str) -> float:
        """Return a number, NaN where it is missing."""
        for full in _full_names(name, self.primary):
            if full in self.numbers:
                return self.numbers[full]
        return math.nan


@lru_cache(REMEMBERED_NAMES)
def _full_names(name: str, primary: Pair) -> tuple[str, ...]:
    name = name.removeprefix(SCALAR_PREFIX)
    return name, f"mismatch_{name}", f"{primary}_{name}"
