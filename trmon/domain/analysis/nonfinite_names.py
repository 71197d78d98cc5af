"""Names of a log whose values are NaN or infinite, and the steps in which they are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from trmon.domain.framework_names import Translation
from trmon.domain.signals.magnitude import is_number

EVALUATION = ("val", "eval", "test")
"""What names of evaluations begin with; they may be NaN where nothing was evaluated."""
ALWAYS_A_FINDING = "loss"
"""The scalar under which a known name of a framework counts, as it is a number in every working step."""


@dataclass(slots=True)
class NonFiniteNames:
    """`known` has the first step of each known name; other names count once they have been finite."""

    known: dict[str, int] = field(default_factory=dict)
    _steps: set[int] = field(default_factory=set)
    _others: dict[int, list[str]] = field(default_factory=dict)
    _first_finite: dict[str, int] = field(default_factory=dict)

    def add(self, line: Translation, *, step: int) -> None:
        """Add the names of a line."""
        for name in line.nonfinite:
            self.known.setdefault(name, step)
        if line.nonfinite:
            self._steps.add(step)
        for name, value in line.others.items():
            if is_number(value):
                self._first_finite.setdefault(name, step)
            elif name not in line.nonfinite and not name.startswith(EVALUATION):
                self._others.setdefault(step, []).append(name)

    def scalars_by_step(self) -> Mapping[int, dict[str, float]]:
        """Return scalars of the steps with such values: NaN where one is, 0 where a name was first finite."""
        found: dict[int, dict[str, float]] = {step: {ALWAYS_A_FINDING: math.nan} for step in self._steps}
        for name in {name for names in self._others.values() for name in names}:
            if name in self._first_finite:
                found.setdefault(self._first_finite[name], {})[name] = 0.0
        for step, names in self._others.items():
            found.setdefault(step, {}).update(dict.fromkeys(names, math.nan))
        return found
