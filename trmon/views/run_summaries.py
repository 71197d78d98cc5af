"""Summaries of runs, each with a diagnosis and sparklines: the stored ones, and newer ones made on request."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from trmon.domain.diagnosis.diagnosis import diagnose
from trmon.domain.health.run_summary import RunSummary, SummaryBasis, sparkline_of
from trmon.domain.model.access import Access
from trmon.domain.model.errors import LakeUnavailable, NotFound, Overloaded
from trmon.domain.runs.run import Run, RunState
from trmon.store import Store
from trmon.store.repositories.summaries import SummaryBases
from trmon.views.recent_history import history_of, newest_steps
from trmon_client.core.column_schema import PRIMARY_ORDER

FRESH_SECONDS = 5.0
"""How long a summary is used while its run goes on."""
FRESH_SECONDS_PER_RUN = 0.1
"""How much longer with many runs: refreshing each of them that often would take a core of its own."""
BUDGET_SECONDS = 0.25
"""How long one request may refresh summaries; the rest are shown up to their own step, and refreshed later."""
MAX_CACHED = 5_000
EXTRA_SIGNALS = ("reward_mean", "step_seconds", "mask_rate")
"""Read in addition to the signals of a diagnosis."""


class RunSummaries:
    """Summaries by run, cached; may be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: dict[int, RunSummary] = {}

    def of(
        self, runs: Sequence[Run], *, access: Access, now: float, budget_seconds: float = BUDGET_SECONDS
    ) -> Mapping[int, RunSummary]:
        """Return summaries by run: the stored ones, and old ones made anew: one at least, more within a time budget.

        A run without a step has none. A summary may be older than its run's newest step: it says of which step it is.
        """
        if len(self._cached) > MAX_CACHED:
            self._cached.clear()
        until = time.monotonic() + budget_seconds
        bases = self._store.summaries.bases([run.id for run in runs])
        self._load(bases)
        for run in sorted(runs, key=self._age):
            if run.id in bases and not self._is_current(run, bases[run.id].now, now=now):
                self._refresh(run, bases[run.id].now, access=access, now=now)
                # Not before: over a slow database no run would ever get a summary.
                if time.monotonic() > until:
                    break
        return {run.id: self._cached[run.id] for run in runs if run.id in self._cached}

    def _load(self, bases: Mapping[int, SummaryBases]) -> None:
        """Take the stored summaries that are current, or newer than the cached ones."""
        wanted = [run_id for run_id, of_run in bases.items() if self._is_better_stored(run_id, of_run)]
        for run_id, stored in self._store.summaries.of(wanted).items():
            cached = self._cached.get(run_id)
            if cached is None or stored.basis == bases[run_id].now or stored.made_at > cached.made_at:
                self._cached[run_id] = stored

    def _is_better_stored(self, run_id: int, bases: SummaryBases) -> bool:
        cached = self._cached.get(run_id)
        if bases.stored is None:
            return False
        return cached is None or cached.basis not in (bases.now, bases.stored)

    def _age(self, run: Run) -> float:
        """Sort key: runs without a summary first, newest run first, then the oldest summaries."""
        summary = self._cached.get(run.id)
        return -run.id if summary is None else summary.made_at

    def _is_current(self, run: Run, basis: SummaryBasis, *, now: float) -> bool:
        """Whether a summary covers the run's newest rows, or is fresh enough for a run that goes on."""
        summary = self._cached.get(run.id)
        if summary is None or summary.basis == basis:
            return summary is not None
        fresh_seconds = max(FRESH_SECONDS, FRESH_SECONDS_PER_RUN * len(self._cached))
        return run.state is RunState.RUNNING and 0 <= now - summary.made_at < fresh_seconds

    def _refresh(self, run: Run, basis: SummaryBasis, *, access: Access, now: float) -> None:
        try:
            self._cached[run.id] = summarize_run(self._store, run, basis=basis, access=access, now=now)
        except (NotFound, LakeUnavailable, Overloaded):
            return


def summarize_run(store: Store, run: Run, *, basis: SummaryBasis, access: Access, now: float) -> RunSummary:
    """Return the summary of a run's newest steps. Args: basis: read before. Errors: NotFound before the first batch."""
    history = history_of(newest_steps(store, run, access=access, extra=EXTRA_SIGNALS))
    values = history.values
    _, kl = history.find("kl_k3", pairs=PRIMARY_ORDER)
    seconds = values["step_seconds"][np.isfinite(values["step_seconds"])]
    return RunSummary(
        run_id=run.id,
        basis=basis,
        made_at=now,
        diagnosis=diagnose(history),
        reward=sparkline_of(history.steps, values["reward_mean"]),
        kl=sparkline_of(history.steps, kl),
        mask_rate=float(values["mask_rate"][-1]),
        expected_step_seconds=float(np.median(seconds)) if len(seconds) else None,
    )
