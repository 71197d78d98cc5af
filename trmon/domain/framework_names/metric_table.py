"""The metric names of one framework, and the signals of trmon that are the same number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetricTable:
    """The metric names of one release of a framework, read from its sources.

    Of several names of one signal the first in the table is read. `linear` has the factor and the offset of names whose
    number is factor x signal + offset in the framework's convention: signal = factor x value + offset. `prefixes` are
    what the framework or its tracker may put before a name; `step_seconds` are names of the duration of a step;
    `updates` are names of a count of updates where a step may have several; `agreement` is the option that makes the
    framework log how far its engines agree, empty if it always does.
    """

    framework: str
    version: str
    files: tuple[str, ...]
    signals: Mapping[str, str]
    excluded: Mapping[str, str] = field(default_factory=dict)
    linear: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    step_seconds: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    agreement: str = ""

    def name_in_table(self, name: str) -> str | None:
        """Return the name as the table has it, without a prefix of a tracker; None if the table lacks it."""
        for known in (name, *(name.removeprefix(prefix) for prefix in self.prefixes)):
            if known in self.signals or known in self.excluded:
                return known
        return None
