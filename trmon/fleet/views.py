"""The newest values of each active run, for /metrics and the API, also of runs that another process evaluates."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from threading import Lock
from typing import Literal

from trmon.domain.pipeline.publish import RunView
from trmon.store.repositories.run_snapshots import RunSnapshots
from trmon_client.core.policies.policy import Policy

Side = Literal["lower", "upper"]
DELETION_CHECK_SECONDS = 15.0
"""How long a deleted run may stay in the cache: its events, which would say so, are deleted with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyThreshold:
    """One bound of a policy as written; `where` is empty for a bound without a condition."""

    statistic: str
    pair: str
    where: str
    bound: Side
    value: float


class RunViewCache:
    """The views of active runs; may be read and written from any thread."""

    def __init__(self, *, idle_after_seconds: float = 3600.0) -> None:
        self._idle_after_seconds = idle_after_seconds
        self._views: dict[int, RunView] = {}
        self._lock = Lock()

    def put(self, view: RunView) -> None:
        """Store a run's view in place of the former one."""
        with self._lock:
            self._views[view.run.id] = view

    def remove(self, run_id: int) -> None:
        """Remove a run's view."""
        with self._lock:
            self._views.pop(run_id, None)

    def get(self, run_id: int) -> RunView | None:
        """Return a run's view, even if the run is idle by now; None if there is none."""
        with self._lock:
            return self._views.get(run_id)

    def active(self, now: float) -> list[RunView]:
        """Return the views of runs that have reported within the idle time, newest first; remove the others."""
        with self._lock:
            oldest = now - self._idle_after_seconds
            self._views = {id_: view for id_, view in self._views.items() if view.run.newest_at >= oldest}
            return sorted(self._views.values(), key=attrgetter("run.newest_at"), reverse=True)


def thresholds_of(policy: Policy) -> Iterator[PolicyThreshold]:
    """Yield the bounds of a policy; of several on one statistic the tightest, as that one decides."""
    bounds: dict[tuple[str, str, str, Side], list[float]] = {}
    for criterion in policy.criteria:
        target = criterion.statistic, criterion.pair, criterion.where or ""
        if criterion.lower is not None:
            bounds.setdefault((*target, "lower"), []).append(criterion.lower)
        if criterion.upper is not None:
            bounds.setdefault((*target, "upper"), []).append(criterion.upper)
    for (statistic, pair, where, side), values in bounds.items():
        tightest = max(values) if side == "lower" else min(values)
        yield PolicyThreshold(statistic=statistic, pair=pair, where=where, bound=side, value=tightest)


class ViewSync:
    """Loads all active runs at the start, then those that are marked as changed."""

    def __init__(self, run_snapshots: RunSnapshots, view_cache: RunViewCache, *, idle_after_seconds: float) -> None:
        self._run_snapshots = run_snapshots
        self._view_cache = view_cache
        self._idle_after_seconds = idle_after_seconds
        self._changed: set[int] = set()
        self._lock = Lock()
        self._checked_at = time.monotonic()

    def load_active(self, *, now: float) -> None:
        """Load every active run."""
        self._load(self._run_snapshots.active(since=now - self._idle_after_seconds), now=now)

    def mark_changed(self, run_ids: Iterable[int]) -> None:
        """Have the next `poll` load these runs; may be called from any thread."""
        with self._lock:
            self._changed.update(run_ids)

    def poll(self) -> None:
        """Load the changed runs and, every 15 s, remove deleted ones; after an error the runs stay marked."""
        with self._lock:
            changed, self._changed = self._changed, set()
        try:
            if changed:
                self._load(changed, now=time.time())
        except Exception:
            self.mark_changed(changed)
            raise
        if time.monotonic() - self._checked_at >= DELETION_CHECK_SECONDS:
            self._remove_deleted()
            self._checked_at = time.monotonic()

    def _load(self, run_ids: Collection[int], *, now: float) -> None:
        stored = self._run_snapshots.of(run_ids, now=now)
        for view in stored:
            self._view_cache.put(view)
        for run_id in set(run_ids) - {view.run.id for view in stored}:
            self._view_cache.remove(run_id)

    def _remove_deleted(self) -> None:
        cached = {view.run.id for view in self._view_cache.active(time.time())}
        for run_id in cached - self._run_snapshots.existing(cached) if cached else ():
            self._view_cache.remove(run_id)
