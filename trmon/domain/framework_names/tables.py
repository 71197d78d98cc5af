"""The names of metrics in frameworks.toml: for each framework, the signals of trmon that are the same number."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

import msgspec
from msgspec import structs

from trmon_client.core.wire.messages import decodable

HOME_MADE = "home-made"


class Meaning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a number means: signal = factor x number + offset.

    Of a number with `share_of`, the number is divided by the sum of the numbers under those names first.
    """

    signal: str
    factor: float = 1.0
    offset: float = 0.0
    share_of: tuple[str, ...] = ()


@decodable
class MetricTable(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True, forbid_unknown_fields=True):
    """The metric names of a framework, read from its sources.

    `files` are the files of each release or commit that the names are from. Of several names of one signal the first in
    the table is read. `left_out` are names that only look like a signal, with the reason. Parts of a metric keep their
    names: `rewards` are those of the reward by function, `scores` of an evaluation by its set, `finishes` the shares of
    reasons why responses end, `evaluations` any metric that was measured in an evaluation, `components` all others. In
    all * stands for any text; of several patterns the longest counts.
    `prefixes` are what the framework or its tracker may put before a name; `step_seconds` are names of the duration of
    a step; `updates` are names of a count of updates where a step may have several; `agreement` is the option that
    makes the framework log how far its engines agree, empty if there is none; it is never that of its base. `base` is
    the framework whose names this one has besides its own.
    """

    framework: str
    files: dict[str, tuple[str, ...]] = {}
    signals: dict[str, Meaning] = {}
    left_out: dict[str, str] = {}
    rewards: tuple[str, ...] = ()
    scores: tuple[str, ...] = ()
    finishes: tuple[str, ...] = ()
    evaluations: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    step_seconds: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    agreement: str = ""
    base: str = ""

    @property
    def family(self) -> str:
        """The framework that this one is made from, or itself."""
        return self.base or self.framework

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of parts of a metric, which keep their names."""
        return (*self.rewards, *self.scores, *self.finishes, *self.evaluations, *self.components)

    @property
    def counts(self) -> tuple[str, ...]:
        """The names of steps, updates and durations."""
        return (*self.steps, *self.updates, *self.step_seconds)

    def name_in_table(self, name: str) -> str | None:
        """Return the name of a metric as the table has it; None if the table lacks it.

        Names that are the same after `normal_form`, without a prefix, are the same.
        """
        return next((key for form in self._forms(name) if (key := self._key(form)) is not None), None)

    def named(self, names: Iterable[str], given: Iterable[str]) -> tuple[str, ...]:
        """Return the given names that are any of the names, in the order of those."""
        by_form = {form: name for name in reversed(tuple(given)) for form in reversed(tuple(self._forms(name)))}
        found = (by_form.get(name) or by_form.get(normal_form(name)) for name in names)
        return tuple(dict.fromkeys(name for name in found if name is not None))

    def _forms(self, name: str) -> Iterator[str]:
        for known in dict.fromkeys((name, name.replace(" / ", "/"), normal_form(name))):
            yield known
            for prefix in self.prefixes:
                if known.startswith(prefix):
                    yield known.removeprefix(prefix)
                elif known.startswith(normal := f"{normal_form(prefix)}_"):
                    yield known.removeprefix(normal)

    def _key(self, form: str) -> str | None:
        key = self._by_form.get(form)
        return key or next((pattern for pattern, regex in self._patterns if regex.fullmatch(form)), None)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return (*self.signals, *self.left_out, *self.parts)

    @cached_property
    def _by_form(self) -> Mapping[str, str]:
        plain = [name for name in self._names if "*" not in name]
        return {**{normal_form(name): name for name in reversed(plain)}, **{name: name for name in plain}}

    @cached_property
    def _patterns(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        patterns = sorted((name for name in self._names if "*" in name), key=len, reverse=True)
        return tuple((name, re.compile(re.escape(name).replace(r"\*", ".+"))) for name in patterns)


@lru_cache(maxsize=8192)
def normal_form(name: str) -> str:
    """Return a name as names are compared: lower case, words joined by _."""
    return re.sub(r"[\W_]+", "_", name.casefold()).strip("_")


_OF_BASE_TOO = (
    *("rewards", "scores", "finishes", "evaluations", "components"),
    *("prefixes", "steps", "step_seconds", "updates"),
)


def load_tables() -> tuple[MetricTable, ...]:
    """Return the tables of frameworks.toml in its order; that of home-made names is the last."""
    content = files("trmon.domain.framework_names").joinpath("frameworks.toml").read_bytes()
    sections: dict[str, dict[str, Any]] = msgspec.toml.decode(content)
    tables = {name: _table(name, section) for name, section in sections.items()}
    return tuple(_with_base(table, tables[table.base]) if table.base else table for table in tables.values())


def _table(name: str, section: dict[str, Any]) -> MetricTable:
    """Return the table of a section alone, in which a signal may stand for its meaning."""
    given = section.get("signals", {}).items()
    signals = {theirs: {"signal": ours} if isinstance(ours, str) else ours for theirs, ours in given}
    return msgspec.convert({**section, "framework": name, "signals": signals}, MetricTable)


def _with_base(own: MetricTable, base: MetricTable) -> MetricTable:
    """Return a table with the names of its base; what it says of a name of its base replaces what the base says."""
    signals = {theirs: meaning for theirs, meaning in base.signals.items() if theirs not in own.left_out}
    left_out = {theirs: why for theirs, why in base.left_out.items() if theirs not in own.signals}
    joined = {names: tuple(dict.fromkeys((*getattr(own, names), *getattr(base, names)))) for names in _OF_BASE_TOO}
    return structs.replace(
        own,
        signals={**own.signals, **signals, **own.signals},
        left_out={**own.left_out, **left_out},
        **joined,
    )
