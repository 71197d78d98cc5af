"""What scalars of a run are by their names: signals, rewards by function, evaluations, reasons why responses end."""

from __future__ import annotations

from collections.abc import Collection

from trmon.domain.framework_names.tables import Meaning, MetricTable
from trmon.domain.framework_names.translation import direct_signals, first_table_with, recognise, trmon_name
from trmon_client.api.signals import ScalarInfo

EVALUATION = "eval_reward"


def named_scalars(names: Collection[str]) -> tuple[ScalarInfo, ...]:
    """Return what the names of a run's numbers are by the tables, by name; names of trmon's own are left out."""
    table, signals = recognise(names), direct_signals(tuple(sorted(names)))
    found = (_named(name, table) or _signal(name, signals) for name in sorted(names) if trmon_name(name) is None)
    return tuple(scalar for scalar in found if scalar is not None and scalar.words)


def _signal(name: str, signals: dict[str, str]) -> ScalarInfo | None:
    if name not in signals:
        return None
    return ScalarInfo(name=name, part="signal", words=name, signal=signals[name])


def _named(name: str, framework: MetricTable | None) -> ScalarInfo | None:
    """Return the part that a name is in the first table that has it; without words if nothing is to be shown of it."""
    found = first_table_with(name, framework)
    if found is None:
        return None
    table, key = found
    if key in table.rewards:
        return ScalarInfo(name=name, part="reward", words=_words(name, key), signal=None)
    if key in table.scores or table.signals.get(key) == Meaning(signal=EVALUATION):
        return ScalarInfo(name=name, part="evaluation", words=_words(name, key), signal=None)
    if key in table.finishes:
        return ScalarInfo(name=name, part="finish", words=_words(name, key), signal=None)
    if key in table.evaluations:
        trained = name[len(key.partition("*")[0]) :]
        signal = trmon_name(trained) or _signal_in(table, trained)
        return ScalarInfo(name=name, part="evaluation", words="evaluation" if signal else "", signal=signal)
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
