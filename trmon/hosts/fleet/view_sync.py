"""Updates the view cache with runs that another process evaluates, from the snapshots it stores."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from threading import Lock
from typing import Protocol

from trmon.store.repositories.run_snapshots import StoredRunView
from trmon.views.run_view_cache import RunView, RunViewCache

DELETION_CHECK_SECONDS = 15.0
"""How long a deleted run may stay in the cache: its events, which would say so, are deleted with it."""


class SnapshotSource(Protocol):
    """The part of the store that reads views of runs."""

    def active(self, *, since: float) -> list[int]:
        """Return the runs that have reported since a time."""

    def existing(self, run_ids: Collection[int], /) -> set[int]:
        """Return which of those runs exist."""

    def of(self, run_ids: Collection[int], /) -> list[StoredRunView]:
        """Return the views of those runs that exist."""


class ViewSync:
    """Loads all active runs at the start, then those that are marked as changed."""

    def __init__(self, run_snapshots: SnapshotSource, view_cache: RunViewCache, *, idle_after_seconds: float) -> None:
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
        stored = self._run_snapshots.of(run_ids)
        for one in stored:
            self._view_cache.put(_view_of(one, now=now))
        for run_id in set(run_ids) - {one.run.id for one in stored}:
            self._view_cache.remove(run_id)

    def _remove_deleted(self) -> None:
        cached = {view.run.id for view in self._view_cache.active(time.time())}
        for run_id in cached - self._run_snapshots.existing(cached) if cached else ():
            self._view_cache.remove(run_id)


def _view_of(stored: StoredRunView, *, now: float) -> RunView:
    return RunView(
        run=stored.run,
        row=stored.row,
        policy=stored.policy,
        alerts=stored.alerts,
        expected_step_seconds=stored.outlook.expected_step_seconds,
        updated_at=now,
        advice=stored.outlook.advice,
        adaptation=stored.adaptation,
        proposed=stored.outlook.proposed,
    )
