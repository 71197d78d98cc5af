"""Reads the newest steps of a run for a diagnosis."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import median

from trmon.domain.diagnosis.features import REQUIRED_SIGNALS
from trmon.domain.diagnosis.history import History
from trmon.domain.model.access import Access
from trmon.domain.model.errors import NotFound
from trmon.domain.runs.run import Run
from trmon.store import Store
from trmon.store.repositories.signal_series import SignalSeries

STEPS = 256
"""How many of the newest steps are read; an older finding is reported as this old."""


def recent_rows(store: Store, run: Run, *, access: Access) -> History:
    """Return the newest 256 steps of a run, every update of them. Errors: NotFound before its first batch."""
    return history_of(newest_steps(store, run, access=access))


def newest_steps(store: Store, run: Run, *, access: Access, extra: Sequence[str] = ()) -> SignalSeries:
    """Return every update of the newest 256 steps: the signals of a diagnosis, and extra ones.

    Errors: NotFound before the run's first batch.
    """
    steps = store.signals.newest_steps(run.id, access=access, limit=STEPS)
    if not steps:
        raise NotFound("batch of", str(run.key))
    names = (*REQUIRED_SIGNALS, *extra)
    return store.signals.series(
        run.id, names=names, access=access, from_step=steps[-1], points=sys.maxsize, updates="all"
    )


def steps_per_rollout(rows: SignalSeries) -> float:
    """Return the median number of optimizer steps on a rollout; 1 where no batch names its update."""
    counts: dict[int, int] = {}
    for step, update in zip(rows.step.tolist(), rows.update.tolist(), strict=True):
        counts[step] = max(counts.get(step, 0), update + 1)
    return max(1.0, median(counts.values()))


def history_of(rows: SignalSeries) -> History:
    """Return the last value of each signal by row."""
    return History.of_rows(
        step=rows.step, update=rows.update, values={name: band.last for name, band in rows.bands.items()}
    )
