"""Summaries of runs, with sparklines and the risk: stored, made on request, and kept current in the background."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from statistics import median
from typing import Protocol

import numpy as np
import structlog

from trmon.domain.access import EVERYTHING, Access
from trmon.domain.collapse_risk.risk_model import model_in_use
from trmon.domain.collapse_risk.risk_reading import RISK_SIGNALS, read_risk
from trmon.domain.errors import LakeUnavailable, NotFound, Overloaded
from trmon.domain.health.run_summary import OutdatedSummary, RunSummary, SummaryBasis, sparkline_of
from trmon.domain.ownership import Ownership
from trmon.domain.runs.run import Run, RunState
from trmon.domain.signals.history import History
from trmon.store import Store
from trmon.store.repositories.signals import SignalSeries
from trmon.store.repositories.summaries import SummaryBases
from trmon_client.core.column_schema import PAIRS, PRIMARY_ORDER

STEPS = 256
"""How many of the newest steps are read."""
FRESH_SECONDS = 5.0
"""How long a summary is used while its run continues."""
FRESH_SECONDS_PER_RUN = 0.1
"""How much longer with many runs: refreshing each of them that often would occupy a core."""
BUDGET_SECONDS = 0.25
"""How long one request may refresh summaries; the rest are shown up to their own step, and refreshed later."""
MAX_CACHED = 5_000
SIGNALS = ("reward_mean", "step_seconds", "mask_rate", *(f"{pair}_kl_k3" for pair in PAIRS), *RISK_SIGNALS)
"""Read for a summary."""
SLICE_SECONDS = 0.1
"""How long one call of `poll`, each second, makes summaries: runs are folded in the rest of the time."""
QUERY_SHARE = 20.0
"""How many times as long as the query for outdated summaries took, the next one waits."""
LIVE_SECONDS = 5.0
"""Shortest time between two summaries of a run that continues."""
AGAIN_SECONDS = 60.0
"""When a summary that was not made, or not stored, is made again, if the run does not change before."""
LIVE_PER_OTHER = 3
"""How many live runs go before one that is not: a backlog neither delays them much nor waits for ever."""

log = structlog.get_logger(__name__)


def newest_steps(store: Store, run: Run, *, access: Access, names: Sequence[str]) -> SignalSeries:
    """Return signals in every update of a run's newest 256 steps. Errors: NotFound before its first batch."""
    steps = store.signals.newest_steps(run.id, access=access, limit=STEPS)
    if not steps:
        raise NotFound("batch of", str(run.key))
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


class RunSummaries:
    """Summaries by run, cached; may be called from any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cached: dict[int, RunSummary] = {}

    def of(
        self, runs: Sequence[Run], *, access: Access, now: float, budget_seconds: float = BUDGET_SECONDS
    ) -> Mapping[int, RunSummary]:
        """Return summaries by run: the stored ones, and old ones made again: one at least, more within a time budget.

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
        """Whether a summary covers the run's newest rows, or is fresh enough for a run that continues."""
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
    history = history_of(newest_steps(store, run, access=access, names=SIGNALS))
    values = history.values
    _, kl = history.find("kl_k3", pairs=PRIMARY_ORDER)
    seconds = values["step_seconds"][np.isfinite(values["step_seconds"])]
    return RunSummary(
        run_id=run.id,
        basis=basis,
        made_at=now,
        reward=sparkline_of(history.steps, values["reward_mean"]),
        kl=sparkline_of(history.steps, kl),
        mask_rate=float(values["mask_rate"][-1]),
        expected_step_seconds=float(np.median(seconds)) if len(seconds) else None,
        collapse_risk=read_risk({name: float(values[name][-1]) for name in RISK_SIGNALS}, model_in_use()),
    )


class SummarySink(Protocol):
    """Stores summaries; one that is lost is made again."""

    def write(self, summaries: Sequence[RunSummary], /) -> object:
        """Store summaries."""


class SummaryUpdater:
    """Makes the summaries that are outdated, of the runs that this process owns; used by one thread.

    What is outdated is asked of the database each time: a restart, another owner and a clock that is set need no
    attention, and a summary that failed to be stored is still outdated.
    """

    def __init__(
        self,
        store: Store,
        sink: SummarySink,
        *,
        ownership: Ownership,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._sink = sink
        self._ownership = ownership
        self._clock = clock
        self._monotonic = monotonic
        self._tried: dict[int, tuple[SummaryBasis, float]] = {}
        self._waiting: deque[OutdatedSummary] = deque()
        self._query_at = 0.0

    def poll(self) -> None:
        """Make and store outdated summaries for a tenth of a second, or try one at least."""
        until = self._monotonic() + SLICE_SECONDS
        if self._monotonic() >= self._query_at:
            self._waiting = deque(self._outdated())
        made: list[RunSummary] = []
        while self._waiting:
            made += self._made(self._waiting.popleft())
            if self._monotonic() >= until:
                break
        if made:
            self._sink.write(made)

    def _outdated(self) -> list[OutdatedSummary]:
        """Return the runs to summarize, in order, and set when to ask again."""
        started_at = self._monotonic()
        fences = self._ownership.fences()
        found = self._store.summaries.outdated(None if fences is None else tuple(fences))
        ended_at = self._monotonic()
        self._query_at = ended_at + QUERY_SHARE * (ended_at - started_at)
        known = {outdated.run_id for outdated in found}
        self._tried = {run_id: tried for run_id, tried in self._tried.items() if run_id in known}
        return in_order([outdated for outdated in found if self._is_due(outdated, ended_at)])

    def _is_due(self, outdated: OutdatedSummary, at: float) -> bool:
        basis, tried_at = self._tried.get(outdated.run_id, (None, at - AGAIN_SECONDS))
        wait_seconds = AGAIN_SECONDS if basis == outdated.basis else LIVE_SECONDS if outdated.is_live else 0.0
        return at - tried_at >= wait_seconds

    def _made(self, outdated: OutdatedSummary) -> list[RunSummary]:
        """Return the summary of a run, or nothing if it cannot be made."""
        run_id, basis = outdated.run_id, outdated.basis
        self._tried[run_id] = basis, self._monotonic()
        try:
            run = self._store.runs.by_id(run_id)
            return [summarize_run(self._store, run, basis=basis, access=EVERYTHING, now=self._clock())]
        except (NotFound, LakeUnavailable, Overloaded):  # deleted, no batch is closed yet, or the lake is away
            return []
        except Exception as error:  # noqa: BLE001 - a run that cannot be summarized must not stop those behind it
            log.warning("run_not_summarized", run=run_id, error=repr(error))
            return []


def in_order(outdated: Sequence[OutdatedSummary]) -> list[OutdatedSummary]:
    """Return live runs, oldest summary first, and after each three of them one other run, newest run first."""
    oldest_first = sorted(outdated, key=lambda one: -1.0 if one.made_at is None else one.made_at)
    live = iter([one for one in oldest_first if one.is_live])
    others = iter(sorted((one for one in outdated if not one.is_live), key=lambda one: -one.run_id))
    ordered: list[OutdatedSummary] = []
    while group := [*islice(live, LIVE_PER_OTHER), *islice(others, 1)]:
        ordered += group
    return ordered
