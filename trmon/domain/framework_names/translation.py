"""Recognises the framework of a log, and translates its lines into signals under trmon's names."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal, TypeAlias

from trmon.domain.framework_names.tables import HOME_MADE, Meaning, MetricTable, load_tables, normal_form
from trmon.domain.signals.derived_signals import DERIVED
from trmon.domain.signals.windows import is_number
from trmon_client.core.column_schema import PAIRS
from trmon_client.core.signals.catalogue import SIGNALS, TRAINER_SCALARS

ALL_TABLES = load_tables()
FRAMEWORKS = tuple(table for table in ALL_TABLES if table.framework != HOME_MADE)
"""The tables of frameworks; of two that know equally many names of a log, the earlier one is taken."""
HOME_MADE_NAMES = next(table for table in ALL_TABLES if table.framework == HOME_MADE)
COMMON_NAMES = frozenset(
    (
        *("loss", "reward", "rewards", "lr", "learning_rate", "grad_norm", "entropy", "kl", "clip_fraction"),
        *("step", "global_step", "train_step", "iteration", "epoch", "episode", "time"),
    )
)
"""Names that trainers of any framework use: no framework is recognised by them."""
NAMES_OF_A_FRAMEWORK = 3
"""A framework is recognised by so many of its names, or by one that no other has."""
SCALARS = ("loss", *TRAINER_SCALARS)
"""Scalars of the trainer that have a name of trmon's."""
LARGEST_STEP = 2**53
"""The largest number that is exact as a float."""
COUNTS = ("n_tokens",)
UNKNOWN_NAME = "unknown name"
_SIGNAL_NAMES = {*SIGNALS, *DERIVED, *COUNTS}
_TRMON_NAMES = {*_SIGNAL_NAMES, *SCALARS}
_PAIR_STEMS = {name.removeprefix(f"{pair}_") for pair in PAIRS for name in _TRMON_NAMES if name.startswith(f"{pair}_")}
_PAIR_PREFIXES = tuple(f"{pair}_" for pair in PAIRS)
Recognised: TypeAlias = MetricTable | None | Literal["recognise"]


def recognise(names: Collection[str]) -> MetricTable | None:
    """Return the table of the framework that alone has one of the names, or three of them; None if there is none."""
    return _recognised(tuple(names))


@lru_cache(maxsize=512)
def _recognised(names: tuple[str, ...]) -> MetricTable | None:
    knowing = [_tables_with(name) for name in names]
    best, most = None, (False, 0)
    for table in FRAMEWORKS:
        known = [tables for tables in knowing if table in tables]
        has_own = any(all(other.family == table.family for other in tables) for tables in known)
        parts = sum(
            table not in tables and bool(table.parts) and table.name_in_table(name) in table.parts
            for name, tables in zip(names, knowing, strict=True)
        )
        if (has_own or len(known) + parts >= NAMES_OF_A_FRAMEWORK) and (has_own, len(known)) > most:
            best, most = table, (has_own, len(known))
    return best


@lru_cache(maxsize=8192)
def _tables_with(name: str) -> tuple[MetricTable, ...]:
    """Return the tables that have a name; names that any trainer uses have none, trmon's own only to the letter."""
    if normal_form(name) in COMMON_NAMES or name in _PAIR_STEMS:
        return ()
    keys = ((table, table.name_in_table(name)) for table in ALL_TABLES)
    is_own = name in _TRMON_NAMES
    return tuple(
        table
        for table, key in keys
        if (key is not None and "*" not in key and (key == name or not is_own)) or table.named(table.counts, (name,))
    )


@dataclass(frozen=True, slots=True)
class IgnoredName:
    """A name that was ignored, and the reason."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """The signals of one log line under trmon's names, its step (None if it names none), and its ignored names.

    `names` has the name that each signal is read from. `update` is the count of updates up to the line, if the line
    names it instead of its step.
    `framework` is the one whose names were read, None if only trmon's own were; `step_seconds` is the duration of the
    step, NaN if it is not known; `others` are the numbers that are no signal, under their names: parts of a metric, and
    those under ignored names; `nonfinite` are the known names with NaN or infinity as their value, except for signals
    that are NaN where they cannot be computed.
    """

    signals: Mapping[str, float]
    names: Mapping[str, str] = field(default_factory=dict)
    step: int | None = None
    update: int | None = None
    framework: str | None = None
    step_seconds: float = math.nan
    others: Mapping[str, float] = field(default_factory=dict)
    ignored: tuple[IgnoredName, ...] = ()
    nonfinite: tuple[str, ...] = ()


def translate(
    metrics: Mapping[str, object], *, table: Recognised = "recognise", mapped: Mapping[str, str] | None = None
) -> Translation:
    """Return the signals of a log line under trmon's names.

    Numbers may be strings; null means that the metric was not logged. Names without a pair prefix mean the mismatch
    pair. The user's names are read first, then trmon's own, those of the framework, and those of all others that agree
    on what a name means.
    Args: table: of the framework, None for none; by default the names of the line tell. mapped: the signals of names
    that the user explains.
    """
    table = recognise(metrics.keys()) if table == "recognise" else table
    reading = _reading(tuple(metrics), table, tuple((mapped or {}).items()))
    numbers = {
        name: number_of(value)
        for name, value in metrics.items()
        if value is not None and name not in reading.steps and name not in reading.updates
    }
    update = _first_step(metrics, reading.updates)
    found = dict(_signals(numbers, reading))
    read = {name for name, _ in found.values()}
    values = (numbers.get(name) for name in reading.step_seconds)
    return Translation(
        signals={signal: value for signal, (_, value) in found.items()},
        names={signal: name for signal, (name, _) in found.items()},
        step=_first_step(metrics, reading.steps) if update is None else None,
        update=update,
        framework=table.framework if table and any(trmon_name(name) is None for name in read) else None,
        step_seconds=next((value for value in values if value is not None and math.isfinite(value)), math.nan),
        others={name: value for name, value in numbers.items() if name not in read and value is not None},
        ignored=tuple(
            IgnoredName(name, _why(name, table, is_number=value is not None))
            for name, value in numbers.items()
            if name not in read and (value is None or name not in reading.components)
        ),
        nonfinite=tuple(_nonfinite(numbers, found, table)),
    )


def signals_of_scalars(scalars: Mapping[str, float]) -> dict[str, float]:
    """Return the trainer's scalars of a step that have a name of trmon's, or mean the same number as one that has."""
    return {
        signal: factor * (scalars[name] / sum(map(scalars.__getitem__, parts)) if parts else scalars[name]) + offset
        for name, signal, factor, offset, parts in _reading_of_scalars(tuple(scalars))
        if not parts or sum(map(scalars.__getitem__, parts)) > 0
    }


@lru_cache(maxsize=512)
def _reading_of_scalars(names: tuple[str, ...]) -> tuple[tuple[str, str, float, float, tuple[str, ...]], ...]:
    """Return the name, the signal, the factor, the offset and the parts of each signal of such scalars."""
    reading = _reading(names, recognise(names), ())
    chosen = {(name, signal) for signal, (name, _) in _signals(dict.fromkeys(names, 1.0), reading)}
    return tuple(
        (found.name, found.meaning.signal, found.meaning.factor, found.meaning.offset, found.parts)
        for found in reading.candidates
        if (found.name, found.meaning.signal) in chosen
    )


def direct_signals(names: tuple[str, ...]) -> dict[str, str]:
    """Return the signal of each name whose number is that of a signal as it is."""
    return {name: signal for name, signal, *change in _reading_of_scalars(names) if change == [1.0, 0.0, ()]}


CANONICAL = ("loss", "grad_norm", "reward_mean", "entropy", "response_length_mean", "lr")
"""The scalars of the trainer that features of a run read, whatever the trainer calls them."""


def with_canonical(scalars: Mapping[str, float]) -> dict[str, float]:
    """Return the trainer's scalars of a step, with those that features read under trmon's names, too."""
    known = signals_of_scalars(scalars)
    return {**scalars, **{name: known[name] for name in CANONICAL if name in known}}


def names_of(signal: str) -> tuple[str, ...]:
    """Return all names of a signal in tables, after its own."""
    named = (
        name for table in tables_in_order(None) for name, meaning in table.signals.items() if meaning.signal == signal
    )
    return tuple(dict.fromkeys((signal, *(name for name in named if "*" not in name))))


def canonical_value(name: str, *, signals: Mapping[str, float], scalars: Mapping[str, float]) -> float:
    """Return a value of a row: its signal, else a scalar of the trainer that means the same; NaN if it has neither."""
    measured = signals.get(name, math.nan)
    return measured if not math.isnan(measured) else signals_of_scalars(scalars).get(name, measured)


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


def trmon_names() -> tuple[str, ...]:
    """Return the names of trmon's own signals and scalars, those of pairs also without the pair."""
    return tuple(sorted({*_TRMON_NAMES, *_PAIR_STEMS}, key=lambda name: (name.startswith(_PAIR_PREFIXES), name)))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A name of a line that may give a signal, and how its number is converted; `parts` are names of the whole."""

    name: str
    meaning: Meaning
    parts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    """How lines with the same names are read: what the names may mean, in order of preference."""

    candidates: tuple[_Candidate, ...]
    steps: tuple[str, ...]
    updates: tuple[str, ...]
    step_seconds: tuple[str, ...]
    components: frozenset[str]


@lru_cache(maxsize=512)
def _reading(names: tuple[str, ...], table: MetricTable | None, mapped: tuple[tuple[str, str], ...]) -> _Reading:
    """Return how lines with these names are read; lines of a log mostly have the same names."""
    users = dict(mapped)
    explained = (_Candidate(name, Meaning(signal=users[name])) for name in names if name in users)
    own = (_Candidate(name, Meaning(signal=signal)) for name in names if (signal := trmon_name(name)) is not None)
    framed = (found for other in tables_in_order(table) for found in _of_table(names, other, framework=table))
    left_out = set() if table is None else {name for name in names if table.name_in_table(name) in table.left_out}
    counts = tuple(name for name in names if name not in users)
    return _Reading(
        candidates=(
            *explained,
            *(found for found in (*own, *framed) if found.name not in left_out and found.name not in users),
        ),
        steps=_named("steps", table, counts),
        updates=() if table is None else table.named(table.updates, counts),
        step_seconds=_named("step_seconds", table, counts),
        components=frozenset(name for name in names if _is_component(name, table)),
    )


def _named(
    kind: Literal["steps", "step_seconds"], table: MetricTable | None, given: tuple[str, ...]
) -> tuple[str, ...]:
    tables = (table, HOME_MADE_NAMES) if table else (HOME_MADE_NAMES,)
    return tuple(dict.fromkeys(name for known in tables for name in known.named(getattr(known, kind), given)))


def tables_in_order(table: MetricTable | None) -> tuple[MetricTable, ...]:
    """Return all tables in the order in which they are asked for a name: the framework's, home-made names, others."""
    first = (HOME_MADE_NAMES,) if table is None else (table, HOME_MADE_NAMES)
    return (*first, *(other for other in FRAMEWORKS if other is not table))


def _of_table(names: tuple[str, ...], table: MetricTable, *, framework: MetricTable | None) -> Iterator[_Candidate]:
    """Yield the names of a table in its order; of tables other than the framework's, what all agree on."""
    known: dict[str, list[str]] = {}
    for name in names:
        key = table.name_in_table(name)
        if key is None or key not in table.signals:
            continue
        is_agreed = (framework is None or framework.name_in_table(name) is None) and (
            _meanings(name).keys() == {table.signals[key]}
        )
        if table is framework or is_agreed:
            known.setdefault(key, []).append(name)
    for key, meaning in table.signals.items():
        parts = table.named(meaning.share_of, names)
        if len(parts) == len(meaning.share_of):
            yield from (_Candidate(name, meaning, parts) for name in known.get(key, ()))


@lru_cache(maxsize=8192)
def _meanings(name: str) -> Mapping[Meaning | None, str]:
    """Return what a name means where its framework is not recognised, with a table for each; None is no signal.

    The table of home-made names decides if it has the name, else the frameworks: those with the name itself before
    those with a pattern, and without what a framework changes of its base.
    """
    keys = [(table, key) for table in reversed(ALL_TABLES) if (key := table.name_in_table(name)) is not None]
    bases = {table.framework for table, _ in keys}
    found = [(table, key) for table, key in keys if key not in table.parts and table.base not in bases]
    home_made = [(table, key) for table, key in found if table is HOME_MADE_NAMES]
    exact = [(table, key) for table, key in found if "*" not in key]
    return {table.signals.get(key): table.framework for table, key in home_made or exact or found}


def first_table_with(name: str, framework: MetricTable | None) -> tuple[MetricTable, str] | None:
    """Return the first table that has a name, and the name as that table has it; None if there is none."""
    keys = ((table, table.name_in_table(name)) for table in tables_in_order(framework))
    return next(((table, key) for table, key in keys if key is not None), None)


def _is_component(name: str, framework: MetricTable | None) -> bool:
    """Whether a name is a part of a metric in the first table that has it."""
    found = first_table_with(name, framework)
    return found is not None and found[1] in found[0].parts


def _signals(numbers: Mapping[str, float | None], reading: _Reading) -> Iterator[tuple[str, tuple[str, float]]]:
    """Yield each signal with the name and the value that it is read from."""
    taken: set[str] = set()
    read: set[str] = set()
    for found in reading.candidates:
        value, meaning = numbers.get(found.name), found.meaning
        if value is None or meaning.signal in taken or found.name in read:
            continue
        if found.parts:
            whole = sum(number for name in found.parts if (number := numbers.get(name)) is not None)
            if not whole > 0:
                continue
            value /= whole
        taken.add(meaning.signal)
        read.add(found.name)
        yield meaning.signal, (found.name, meaning.factor * value + meaning.offset)


def _nonfinite(
    numbers: Mapping[str, float | None], found: Mapping[str, tuple[str, float]], table: MetricTable | None
) -> Iterator[str]:
    signals = {name: signal for signal, (name, _) in found.items()}
    for name, value in numbers.items():
        if value is None or is_number(value):
            continue
        if name in signals:
            signal = signals[name]
            is_own = signal in _SIGNAL_NAMES and (name in _SIGNAL_NAMES or name in _PAIR_STEMS)
            if not (is_own or signal.endswith("prob_pearson") or signal == "eval_reward"):
                yield name
        elif table is not None and (key := table.name_in_table(name)) is not None and key not in table.parts:
            yield name


@lru_cache(maxsize=8192)
def _why(name: str, table: MetricTable | None, *, is_number: bool) -> str:
    found = first_table_with(name, table)
    if found is None:
        return "not a number" if not is_number and trmon_name(name) else UNKNOWN_NAME
    known, key = found
    if key in known.left_out:
        return known.left_out[key]
    if not is_number:
        return "not a number"
    if known is not table and len(_meanings(name)) > 1:
        return f"its meaning depends on the framework: {' or '.join(_meanings(name).values())}"
    meaning = known.signals[key]
    lacking = f", or {', '.join(meaning.share_of)} are not all logged" if meaning.share_of else ""
    return f"{meaning.signal} is read from another name{lacking}"
