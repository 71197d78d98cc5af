"""The moments at which a prediction is scored: every ten updates from update 60 whose label is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trmon_research.collapse.severity import COLLAPSE, Floats
from trmon_research.collapse.stored_runs import StoredRun

FIRST_UPDATE = 60
EVERY = 10


@dataclass(frozen=True, eq=False)
class Moments:
    """M moments: the run's place, the update, and whether a fall begins within 200 updates; each [M].

    `can_show` is false before the first update at which the run's configuration changes: what is only planned leaves
    no trace in a signal.
    """

    run: npt.NDArray[np.intp]
    update: npt.NDArray[np.intp]
    falls: npt.NDArray[np.bool_]
    can_show: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.run)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Moments:
        """Return the chosen moments."""
        return Moments(self.run[chosen], self.update[chosen], self.falls[chosen], self.can_show[chosen])

    def values(self, per_run: Sequence[Floats]) -> Floats:
        """Return rows at the moments, [M, ...], of arrays [updates, ...], one a run."""
        return np.array([per_run[run][update] for run, update in zip(self.run, self.update, strict=True)])


def scored_moments(runs: Sequence[StoredRun], *, grade: float = COLLAPSE) -> Moments:
    """Return the moments of runs at which it is known whether a fall of a grade begins."""
    found = [
        (place, update, begins[update] > 0, update >= run.begins)
        for place, run in enumerate(runs)
        for begins in (run.course.begins(grade),)
        for update in range(FIRST_UPDATE, run.n_updates, EVERY)
        if not np.isnan(begins[update])
    ]
    run, update, falls, can_show = zip(*found, strict=True)
    return Moments(np.array(run), np.array(update), np.array(falls), np.array(can_show))
