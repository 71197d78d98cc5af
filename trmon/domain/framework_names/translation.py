"""Recognises the framework of a log, and translates its lines into signals under trmon's names."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from trmon.domain.framework_names.tables import (
    AREAL,
    MS_SWIFT,
    NEMO_RL,
    OPENRLHF,
    PRIME_RL,
    SKYRL,
    SLIME,
    TRL,
    VERL,
    MetricTable,
)
from trmon.domain.signals.derived_signals import ALIASES, DERIVED
from trmon.domain.signals.windows import is_number
from trmon_client.core.column_schema import PAIRS
from trmon_client.core.signals.catalogue import SIGNALS, TRAINER_SCALARS

FRAMEWORKS: tuple[MetricTable, ...] = (VERL, TRL, SLIME, PRIME_RL, NEMO_RL, OPENRLHF, SKYRL, AREAL, MS_SWIFT)
"""All tables; of two that know equally many names of a log, the earlier one is taken."""


def recognise(names: Collection[str]) -> MetricTable | None:
    """Return the table that knows most of the names; None if none knows any."""
    return _recognised(tuple(names))


@lru_cache(maxsize=512)
def _recognised(names: tuple[str, ...]) -> MetricTable | None:
    counts = [sum(table.name_in_table(name) is not None for name in names) for table in FRAMEWORKS]
    best = max(counts)
    return FRAMEWORKS[counts.index(best)] if best else None


SCALARS = ("loss", *TRAINER_SCALARS)
"""Scalars of the trainer that have a name of trmon's."""
STEPS = ("step", "global_step", "_step")
"""The names of the step in lines of any framework, after those of its own."""
LARGEST_STEP = 2**53
"""The largest number that is exact as a float."""
COUNTS = ("n_tokens",)
"""Counts of a batch that a diagnosis reads."""
_SIGNAL_NAMES = {*SIGNALS, *DERIVED, *COUNTS}
_TRMON_NAMES = {*_SIGNAL_NAMES, *SCALARS}
_PAIR_STEMS = {name.removeprefix(f"{pair}_") for pair in PAIRS for name in _TRMON_NAMES if name.startswith(f"{pair}_")}
_ALIASED = {alias: name for name, aliases in ALIASES.items() for alias in aliases}


@dataclass(frozen=True, slots=True)
class IgnoredName:
    """A name that was ignored, and the reason."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The signals of one log line under trmon's names, its step (None if it names none), and its ignored names.

    `update` is the count of updates up to the line, if the line names it instead of its step.
    `framework` is the one whose names were read, None if only trmon's own were; `step_seconds` is the duration of the
    step, NaN if it is not known; `others` are the numbers under ignored names; `nonfinite` are the known names with NaN
    or infinity as their value, except for signals that are NaN where they cannot be computed.
    """

    signals: Mapping[str, float]
    step: int | None = None
    update: int | None = None
    framework: str | None = None
    step_seconds: float = math.nan
    others: Mapping[str, float] = field(default_factory=dict)
    ignored: tuple[IgnoredName, ...] = ()
    nonfinite: tuple[str, ...] = ()


def translate(metrics: Mapping[str, object], *, table: MetricTable | None = None) -> Translation:
    """Return the signals of a log line under trmon's names.

    Numbers may be strings, or null (NaN). Names without a pair prefix mean the mismatch pair. trmon's own names are
    read first, then those of the framework, then those of all others.
    Args: table: of the framework; by default of the one that knows most of the names.
    """
    table = table or recognise(metrics.keys())
    steps = (*(table.steps if table else ()), *STEPS)
    updates = table.updates if table else ()
    numbers = {name: number_of(value) for name, value in metrics.items() if name not in steps and name not in updates}
    update = _first_step(metrics, updates)
    found = dict(_signals(numbers, table))
    read = {name for name, _ in found.values()}
    others = {name: value for name, value in numbers.items() if name not in read and value is not None}
    undefined = {name for signal, (name, _) in found.items() if signal in _SIGNAL_NAMES and _may_be_nan(signal, name)}
    return Translation(
        signals={signal: value for signal, (_, value) in found.items()},
        step=_first_step(metrics, steps) if update is None else None,
        update=update,
        framework=table.framework if table and any(trmon_name(name) is None for name in read) else None,
        step_seconds=_step_seconds(numbers, table),
        others=others,
        ignored=tuple(
            IgnoredName(name, _why(name, table, is_number=value is not None))
            for name, value in numbers.items()
            if name not in read
        ),
        nonfinite=tuple(
            name
            for name, value in numbers.items()
            if value is not None
            and not is_number(value)
            and name not in undefined
            and (name in read or (table is not None and table.name_in_table(name)))
        ),
    )


def signals_of_scalars(scalars: Mapping[str, float]) -> dict[str, float]:
    """Return the trainer's scalars of a step that have a name of trmon's, or mean the same number as one that has."""
    return {signal: value for signal, (_, value) in _signals(scalars, recognise(scalars))}


def number_of(given: object) -> float | None:
    """Return the number that a value of a log stands for: null is NaN; None for a value that is no number."""
    if given is None:
        return math.nan
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        return None
    try:
        return float(given)
    except (ValueError, OverflowError):
        return None


def step_of(given: object) -> int | None:
    """Return the step that a value states; "12/400" is 12. None if it states none."""
    number = number_of(given.partition("/")[0] if isinstance(given, str) else given)
    is_step = number is not None and abs(number) <= LARGEST_STEP and number.is_integer()
    return int(number) if number is not None and is_step else None


def _first_step(metrics: Mapping[str, object], names: tuple[str, ...]) -> int | None:
    return next((step for name in names if (step := step_of(metrics.get(name))) is not None), None)


def trmon_name(name: str) -> str | None:
    """Return the full name of a signal of trmon's; names without a pair prefix mean the mismatch pair."""
    if name in _PAIR_STEMS:
        return f"mismatch_{name}"
    return name if name in _TRMON_NAMES else None


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A name of a line that may give a signal, and how its number is converted."""

    name: str
    signal: str
    factor: float = 1.0
    offset: float = 0.0


def _signals(numbers: Mapping[str, float | None], table: MetricTable | None) -> Iterator[tuple[str, tuple[str, float]]]:
    """Yield each signal with the name and the value that it is read from."""
    taken: set[str] = set()
    read: set[str] = set()
    for found in _candidates(tuple(numbers), table):
        value = numbers[found.name]
        if value is not None and found.signal not in taken and found.name not in read:
            taken.add(found.signal)
            read.add(found.name)
            yield found.signal, (found.name, found.factor * value + found.offset)


@lru_cache(maxsize=512)
def _candidates(names: tuple[str, ...], table: MetricTable | None) -> tuple[_Candidate, ...]:
    """Return what the names of a line may mean, in order of preference; lines of a log mostly have the same names."""
    own = (_Candidate(name, signal) for name in names if (signal := trmon_name(name)) is not None)
    framed = (found for other in _tables(table) for found in _of_table(names, other))
    aliases = (_Candidate(name, _ALIASED[name]) for name in names if name in _ALIASED)
    excluded = table.excluded if table else {}
    return tuple(found for found in (*own, *framed, *aliases) if found.name not in excluded)


def _tables(table: MetricTable | None) -> tuple[MetricTable, ...]:
    return () if table is None else (table, *(other for other in FRAMEWORKS if other is not table))


def _of_table(names: tuple[str, ...], table: MetricTable) -> Iterator[_Candidate]:
    """Yield the names of a framework in the order of its table."""
    known = {table.name_in_table(name): name for name in names}
    for key, signal in table.signals.items():
        if key in known:
            yield _Candidate(known[key], signal, *table.linear.get(key, (1.0, 0.0)))


def _may_be_nan(signal: str, name: str) -> bool:
    """Whether NaN is a legal value: for trmon's own signals, and for a correlation of values that hardly vary."""
    return name in _SIGNAL_NAMES or name in _PAIR_STEMS or signal.endswith("prob_pearson")


def _step_seconds(numbers: Mapping[str, float | None], table: MetricTable | None) -> float:
    for name in table.step_seconds if table else ():
        value = numbers.get(name)
        if value is not None and math.isfinite(value):
            return value
    return math.nan


@lru_cache(maxsize=4096)
def _why(name: str, table: MetricTable | None, *, is_number: bool) -> str:
    """Return why a name is ignored."""
    for known in _tables(table):
        key = known.name_in_table(name)
        if key is None:
            continue
        if key in known.excluded:
            return known.excluded[key]
        return f"{known.signals[key]} is read from another name" if is_number else "not a number"
    return "not a number" if not is_number and trmon_name(name) else "unknown name"
