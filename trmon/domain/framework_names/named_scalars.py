"""What scalars of a run are by their names: signals, rewards by function, evaluations, reasons why responses end."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from trmon.domain.framework_names.tables import Meaning, MetricTable
from trmon.domain.framework_names.translation import direct_signals, first_table_with, recognise, trmon_name

EVALUATION = "eval_reward"


class ScalarPart(str, Enum):
    """What a scalar is a part of."""

    SIGNAL = "signal"
    REWARD = "reward"
    EVALUATION = "evaluation"
    FINISH = "finish"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedScalar:
    """A scalar of a trainer; `signal` is the signal that it measures, in an evaluation if that is its part.

    `words` name it among others of its part, such as by its reward function.
    """

    name: str
    part: ScalarPart
    words: str
    signal: str | None = None


def named_scalars(names: Collection[str]) -> tuple[NamedScalar, ...]:
    """Return what the names of a run's numbers are by the tables, by name; names of trmon's own are left out."""
    table, signals = recognise(names), direct_signals(tuple(sorted(names)))
    found = (_named(name, table) or _signal(name, signals) for name in sorted(names) if trmon_name(name) is None)
    return tuple(scalar for scalar in found if scalar is not None and scalar.words)


def _signal(name: str, signals: dict[str, str]) -> NamedScalar | None:
    if name not in signals:
        return None
    return NamedScalar(name=name, part=ScalarPart.SIGNAL, words=name, signal=signals[name])


def _named(name: str, framework: MetricTable | None) -> NamedScalar | None:
    """Return the part that a name is in the first table that has it; without words if nothing is to be shown of it."""
    found = first_table_with(name, framework)
    if found is None:
        return None
    table, key = found
    if key in table.rewards:
        return NamedScalar(name=name, part=ScalarPart.REWARD, words=_words(name, key))
    if key in table.scores or table.signals.get(key) == Meaning(signal=EVALUATION):
        return NamedScalar(name=name, part=ScalarPart.EVALUATION, words=_words(name, key))
    if key in table.finishes:
        return NamedScalar(name=name, part=ScalarPart.FINISH, words=_words(name, key))
    if key in table.evaluations:
        trained = name[len(key.partition("*")[0]) :]
        signal = trmon_name(trained) or _signal_in(table, trained)
        return NamedScalar(name=name, part=ScalarPart.EVALUATION, words="evaluation" if signal else "", signal=signal)
    return None


def _signal_in(table: MetricTable, name: str) -> str | None:
    meaning = table.signals.get(table.name_in_table(name) or "")
    return None if meaning is None or meaning != Meaning(signal=meaning.signal) else meaning.signal


def _words(name: str, key: str) -> str:
    """Return what a pattern leaves open in a name, without a trailing mean; nothing for a spread."""
    before, star, after = key.partition("*")
    text = name.partition(before)[2] if star and before in name else name
    text = text.removesuffix("" if "*" in after else after).removesuffix("/mean")
    return "" if text.endswith(("/std", "_std")) else text
