"""Reading of signals: the numbers of one row as rules read them, and the remembered history of the run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache

import msgspec

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
