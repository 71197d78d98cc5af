"""History: what is known of a run's newest steps, one value a step, as a diagnosis reads it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from trmon_client.core.columns.schema import Pair

Array: TypeAlias = Any

ENGINES: tuple[Pair, ...] = ("mismatch", "total")
"""The pairs, in order of preference, on which engines can be compared."""
JUDGED: tuple[Pair, ...] = ("mismatch", "total", "staleness")
"""The pairs, in order of preference, that unprefixed signals mean. Source: formulas, section 9."""

EARLY_UPDATES = 8
"""How many updates of a rollout count as its first; drift that only later ones show is reuse, not a large step."""
OVER_UPDATES = ("staleness_kl_k3", "staleness_chi2_token", "clip_fraction")
"""Signals that grow from update to update, of which a step's largest value is read."""


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Signals and scalars by name, [n] each, NaN where unknown, over `steps` [n], oldest first; n is 1 or more."""

    steps: Array
    values: Mapping[str, Array]

    @classmethod
    def of_rows(cls, *, step: Array, update: Array, values: Mapping[str, Array]) -> History:
        """Return the history in a run's batches.

        A step's value is that of its whole rollout batch, else of its last update that has one; of signals that grow
        over updates it is the largest, and `staleness_kl_k3_early` the largest of the first 8.
        Args: step, update: [batches], in the run's order, `update` -1 for the whole rollout batch; values: [batches].
        """
        step, update = np.asarray(step), np.asarray(update)
        steps = np.unique(step)
        at = np.searchsorted(steps, step)
        found = {name: _gauged(np.asarray(column, float), at, update, len(steps)) for name, column in values.items()}
        for name in OVER_UPDATES:
            if name in values:
                found[name] = _largest(np.asarray(values[name], float), at, len(steps))
        if "staleness_kl_k3" in values:
            early = np.where(update < EARLY_UPDATES, np.asarray(values["staleness_kl_k3"], float), np.nan)
            found["staleness_kl_k3_early"] = _largest(early, at, len(steps))
        return cls(steps, found)

    @classmethod
    def of_signals(cls, signals: Mapping[str, float], *, step: int = 0) -> History:
        """Return the history that one step's signals are."""
        return cls.of_rows(step=[step], update=[-1], values={name: [value] for name, value in signals.items()})

    def __len__(self) -> int:
        return len(self.steps)

    def find(self, signal: str, *, pairs: Sequence[Pair] = JUDGED) -> tuple[str, Array]:
        """Return a signal's full name and values, NaN where there are none; a stem is of the first pair there is.

        A pair is there if any of its signals is: what it lacks is not taken from another one.
        """
        there = next((pair for pair in pairs if any(name.startswith(f"{pair}_") for name in self.values)), None)
        of_pair = f"{there}_{signal}" if there else signal
        name = of_pair if of_pair in self.values else signal
        return name, self.values.get(name, np.full(len(self), math.nan))

    def has(self, signal: str) -> bool:
        """Whether a signal of this full name is there, whatever its values."""
        return signal in self.values


def _gauged(column: Array, at: Array, update: Array, n: int) -> Array:
    """Later rows overwrite earlier ones, and the whole rollout batch overwrites its updates."""
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
