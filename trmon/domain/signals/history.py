"""History: the signals of the newest steps of a run, one value per step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from trmon_client.core.column_schema import Pair

Array: TypeAlias = Any

ENGINE_PAIRS: tuple[Pair, ...] = ("mismatch", "total")
"""The pairs that compare the engines, in order of preference."""
DEFAULT_PAIRS: tuple[Pair, ...] = ("mismatch", "total", "staleness")
"""The pairs that names without a prefix mean, in order of preference. Source: formulas, section 9."""

GROWING_SIGNALS = (
    *("staleness_kl_k3", "staleness_chi2_token", "staleness_prob_diff_max", "staleness_tv_is"),
    "clip_fraction",
)
"""Signals that grow from update to update; the value of a step is the largest one."""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Signals and scalars by name, [n] each, NaN if unknown, over `steps` [n], oldest first; n is 1 or more."""

    steps: Array
    values: Mapping[str, Array]

    @classmethod
    def of_rows(cls, *, step: Array, update: Array, values: Mapping[str, Array]) -> History:
        """Return the history of the batches of a run.

        The value of a step is that of its whole rollout batch, else of its last update with a value; for signals that
        grow over updates it is the largest one. Signals of a pair without a finite value are left out.
        Args: step, update: [batches], in the run's order, `update` -1 for the whole rollout batch; values: [batches].
        """
        step, update = np.asarray(step), np.asarray(update)
        absent = tuple(
            f"{pair}_"
            for pair in DEFAULT_PAIRS
            if not any(name.startswith(f"{pair}_") and np.isfinite(column).any() for name, column in values.items())
        )
        values = {name: column for name, column in values.items() if not name.startswith(absent)}
        steps = np.unique(step)
        at = np.searchsorted(steps, step)
        found = {
            name: _step_values(np.asarray(column, float), at, update, len(steps)) for name, column in values.items()
        }
        for name in GROWING_SIGNALS:
            if name in values:
                found[name] = _largest(np.asarray(values[name], float), at, len(steps))
        return cls(steps, found)

    def __len__(self) -> int:
        return len(self.steps)

    def find(self, signal: str, *, pairs: Sequence[Pair] = DEFAULT_PAIRS) -> tuple[str, Array]:
        """Return the full name and the values, NaN without any; a stem means the first pair that has any signal."""
        available = next((pair for pair in pairs if any(name.startswith(f"{pair}_") for name in self.values)), None)
        of_pair = f"{available}_{signal}" if available else signal
        name = of_pair if of_pair in self.values else signal
        return name, self.values.get(name, np.full(len(self), math.nan))

    def newest(self, signal: str, *, rows: int = 1) -> tuple[str, float]:
        """Return the full name of a signal and the median of its newest known values; NaN without one."""
        name, values = self.find(signal)
        known = values[~np.isnan(values)][-rows:]
        return name, float(np.median(known)) if len(known) else math.nan

    def has(self, signal: str) -> bool:
        """Whether the history has a signal with this full name, even if all values are NaN."""
        return signal in self.values


def _step_values(column: Array, at: Array, update: Array, n: int) -> Array:
    """Return one value per step: later rows replace earlier ones, the whole rollout batch replaces its updates."""
    out = np.full(n, np.nan)
    for rows in (update >= 0, update < 0):
        known = rows & ~np.isnan(column)
        out[at[known]] = column[known]
    return out


def _largest(column: Array, at: Array, n: int) -> Array:
    out = np.full(n, -np.inf)
    known = ~np.isnan(column)
    np.maximum.at(out, at[known], column[known])
    seen = np.zeros(n, bool)
    seen[at[known]] = True
    return np.where(seen, out, np.nan)
