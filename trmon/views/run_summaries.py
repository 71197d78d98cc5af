"""Glances: the newest steps of runs, diagnosed and drawn small, remembered for as long as they stay true."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trmon.domain.diagnosis import Diagnosis, History, diagnose
from trmon.domain.health.sparkline import Sparkline, sparkline_of
from trmon.domain.model.access import Access
from trmon.domain.model.errors import NotFound
from trmon.domain.runs.run import Run, RunState
from trmon.store import Store
from trmon.views.recent_history import history_of, newest_steps
from trmon_client.core.columns.schema import PRIMARY_ORDER

FRESH_SECONDS = 5.0
"""How long a glance stands while its run goes on."""
FRESH_SECONDS_PER_RUN = 0.1
"""How much longer in a large fleet, where renewing each of them that often would take a core of its own."""
SETTLED_SECONDS = 120.0
"""How long after its last report a run has closed all its batches; nothing changes after that."""
BUDGET_SECONDS = 0.25
"""How long one answer may look at runs; those it does not come to are looked at for the next one."""
MAX_REMEMBERED = 5_000
KL = tuple(f"{pair}_kl_k3" for pair in PRIMARY_ORDER)
BESIDE = ("reward_mean", "step_seconds")
"""What is read beside the signals of a diagnosis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """What one look at a run's newest steps saw; `made_at` is when."""

    made_at: float
    state: RunState
    diagnosis: Diagnosis
    reward: Sparkline
    kl: Sparkline
    mask_rate: float
    expected_step_seconds: float | None


class RunSummaries:
    """The newest glance at each run; may be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._remembered: dict[int, RunSummary] = {}

    def at(self, runs: Sequence[Run], *, access: Access, now: float) -> Mapping[int, RunSummary]:
        """Return glances by run, old ones renewed for as long as the budget lasts; a run without a step has none."""
        if len(self._remembered) > MAX_REMEMBERED:
            self._remembered.clear()
        until = time.monotonic() + BUDGET_SECONDS
        for run in sorted(runs, key=self._age):
            if time.monotonic() > until:
                break
            if run.last_step is not None and not self._stands(run, now=now):
                self._look(run, access=access, now=now)
        return {run.id: self._remembered[run.id] for run in runs if run.id in self._remembered}

    def _age(self, run: Run) -> float:
        """Those never looked at come first, the newest of them before the others."""
        glance = self._remembered.get(run.id)
        return -run.id if glance is None else glance.made_at

    def _stands(self, run: Run, *, now: float) -> bool:
        glance = self._remembered.get(run.id)
        if glance is None or glance.state is not run.state:
            return False
        is_final = glance.made_at > (run.last_report_at or run.created_at) + SETTLED_SECONDS
        fresh_seconds = max(FRESH_SECONDS, FRESH_SECONDS_PER_RUN * len(self._remembered))
        return is_final or now - glance.made_at < fresh_seconds

    def _look(self, run: Run, *, access: Access, now: float) -> None:
        try:
            history = history_of(newest_steps(self._store, run, access=access, beside=BESIDE))
        except NotFound:
            return
        self._remembered[run.id] = _glance(run, history, now=now)


def _glance(run: Run, history: History, *, now: float) -> RunSummary:
    values = history.values
    kl = next((values[name] for name in KL if np.isfinite(values[name]).any()), values[KL[0]])
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
