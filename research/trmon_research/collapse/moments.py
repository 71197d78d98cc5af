"""The moments at which a prediction is scored: every ten updates, from update 60 to the onset."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trmon_research.collapse.stored_runs import Floats, StoredRun
from trmon_research.sweep.sweep_plan import first_change

FIRST_UPDATE = 60
EVERY = 10


@dataclass(frozen=True, eq=False)
class Moments:
    """M moments: the run's place, the update, and whether a collapse begins within 200 updates; each [M].

    `can_show` is false before the first update at which the run's configuration changes: what is only planned leaves
    no trace in a signal.
    """

    run: npt.NDArray[np.intp]
    update: npt.NDArray[np.intp]
    collapses: npt.NDArray[np.bool_]
    can_show: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.run)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Moments:
        """Return the chosen moments."""
        return Moments(self.run[chosen], self.update[chosen], self.collapses[chosen], self.can_show[chosen])

    def values(self, per_run: Sequence[Floats]) -> Floats:
        """Return rows at the moments, [M, ...], of arrays [updates, ...], one a run."""
        return np.array([per_run[run][update] for run, update in zip(self.run, self.update, strict=True)])


def scored_moments(runs: Sequence[StoredRun]) -> Moments:
    """Return the moments of runs whose label is known: none from the onset on, none too near the end of a run."""
    found = [
        (place, update, collapses, update >= first_change(run.config))
        for place, run in enumerate(runs)
        for update in range(FIRST_UPDATE, run.label.n_updates, EVERY)
        if (collapses := run.label.collapses_after(update)) is not None
    ]
    run, update, collapses, can_show = zip(*found, strict=True)
    return Moments(np.array(run), np.array(update), np.array(collapses), np.array(can_show))
