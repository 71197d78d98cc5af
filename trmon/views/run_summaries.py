"""Caches a summary of each run's newest steps: its diagnosis and its sparklines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from trmon.domain.diagnosis import History, diagnose
from trmon.domain.health.run_summary import RunSummary
from trmon.domain.health.sparkline import sparkline_of
from trmon.domain.model.access import Access
from trmon.domain.model.errors import NotFound
from trmon.domain.runs.run import Run
from trmon.store import Store
from trmon.views.recent_history import history_of, newest_steps
from trmon_client.core.columns.schema import PRIMARY_ORDER

FRESH_SECONDS = 5.0
"""How long a summary is used while its run goes on."""
FRESH_SECONDS_PER_RUN = 0.1
"""How much longer with many runs: refreshing each of them that often would take a core of its own."""
SETTLED_SECONDS = 120.0
"""How long after its last report all batches of a run are closed; its summary does not change after that."""
BUDGET_SECONDS = 0.25
"""How long one request may refresh summaries; the rest are refreshed by later requests."""
MAX_CACHED = 5_000
EXTRA_SIGNALS = ("reward_mean", "step_seconds", "mask_rate")
"""Read in addition to the signals of a diagnosis."""


class RunSummaries:
    """Summaries by run; may be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: dict[int, RunSummary] = {}

    def of(
        self, runs: Sequence[Run], *, access: Access, now: float, budget_seconds: float = BUDGET_SECONDS
    ) -> Mapping[int, RunSummary]:
        """Return summaries by run, old ones refreshed within a time budget; a run without a step has none."""
        if len(self._cached) > MAX_CACHED:
            self._cached.clear()
        until = time.monotonic() + budget_seconds
        for run in sorted(runs, key=self._age):
            if time.monotonic() > until:
                break
            if run.last_step is not None and not self._is_current(run, now=now):
                self._refresh(run, access=access, now=now)
        return {run.id: self._cached[run.id] for run in runs if run.id in self._cached}

    def _age(self, run: Run) -> float:
        """Sort key: runs without a summary first, newest run first, then the oldest summaries."""
        summary = self._cached.get(run.id)
        return -run.id if summary is None else summary.made_at

    def _is_current(self, run: Run, *, now: float) -> bool:
        summary = self._cached.get(run.id)
        if summary is None or summary.state is not run.state:
            return False
        is_final = summary.made_at > (run.last_report_at or run.created_at) + SETTLED_SECONDS
        fresh_seconds = max(FRESH_SECONDS, FRESH_SECONDS_PER_RUN * len(self._cached))
        return is_final or now - summary.made_at < fresh_seconds

    def _refresh(self, run: Run, *, access: Access, now: float) -> None:
        try:
            history = history_of(newest_steps(self._store, run, access=access, extra=EXTRA_SIGNALS))
        except NotFound:
            return
        self._cached[run.id] = _summary_of(run, history, now=now)


def _summary_of(run: Run, history: History, *, now: float) -> RunSummary:
    values = history.values
    _, kl = history.find("kl_k3", pairs=PRIMARY_ORDER)
    seconds = values["step_seconds"][np.isfinite(values["step_seconds"])]
    return RunSummary(
        made_at=now,
        state=run.state,
        diagnosis=diagnose(history),
        reward=sparkline_of(history.steps, values["reward_mean"]),
        kl=sparkline_of(history.steps, kl),
        mask_rate=float(values["mask_rate"][-1]),
        expected_step_seconds=float(np.median(seconds)) if len(seconds) else None,
    )
