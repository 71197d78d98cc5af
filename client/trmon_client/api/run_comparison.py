"""Several runs side by side, aligned by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from trmon_client.api.data_frames import ColumnTable
from trmon_client.api.signal_history import SignalHistory


@dataclass(frozen=True, eq=False, kw_only=True)
class RunComparison(ColumnTable):
    """Signals of several runs over the steps that any of them has; NaN where a run lacks the step.

    `values[run][name]` is float64 [steps], and `step` int64 [steps].
    """

    step: Any
    values: Mapping[str, Mapping[str, Any]]

    def columns(self) -> dict[str, Any]:
        """Return the step, and a column `RUN NAME` for each run and signal."""
        named = {f"{run} {name}": array for run, signals in self.values.items() for name, array in signals.items()}
        return {"step": self.step, **named}


def compare_histories(histories: Sequence[SignalHistory]) -> RunComparison:
    """Return histories aligned by step; of several rows of a step, the newest counts."""
    steps = reduce(np.union1d, [history.step for history in histories], np.empty(0, np.int64))
    return RunComparison(step=steps, values={history.run: _aligned(history, steps) for history in histories})


def _aligned(history: SignalHistory, steps: Any) -> dict[str, Any]:
    rows = np.searchsorted(steps, history.step)
    found = {}
    for name in history.bands:
        found[name] = np.full(len(steps), np.nan)
        found[name][rows] = history[name]
    return found
