"""The mirror: shows runs that another process watches, as that one last wrote them."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from threading import Lock
from typing import Protocol

from trmon.store.repositories.run_snapshots import StoredRunView
from trmon.views.run_view_cache import RunView, RunViewCache

SWEEP_SECONDS = 15.0
"""How long a run that was deleted may still be shown: its events, which would tell of it, are gone with it."""


class SnapshotSource(Protocol):
    """What the mirror asks of the store."""

    def active(self, *, since: float) -> list[int]:
        """Return the runs that were heard of since a time."""

    def existing(self, run_ids: Collection[int]) -> set[int]:
        """Return which of those runs exist."""

    def of(self, run_ids: Collection[int]) -> list[StoredRunView]:
        """Return the sights of those runs that exist."""


class ViewSync:
    """Feeds Live from the store: all active runs at the start, then those of which something was said."""

    def __init__(self, run_snapshots: SnapshotSource, live: RunViewCache, *, idle_after_seconds: float) -> None:
        self._run_snapshots = run_snapshots
        self._live = live
        self._idle_after_seconds = idle_after_seconds
        self._noted: set[int] = set()
        self._lock = Lock()
        self._swept_at = time.monotonic()

    def fill(self, *, now: float) -> None:
        """Show every run that is active."""
        self.show(self._run_snapshots.active(since=now - self._idle_after_seconds), now=now)

    def note(self, run_ids: Iterable[int]) -> None:
        """Have runs shown by the next look; may be called from any thread."""
        with self._lock:
            self._noted.update(run_ids)

    def look(self) -> None:
        """Show the runs that were noted, and now and then forget deleted ones; what cannot be read stays noted."""
        with self._lock:
            noted, self._noted = self._noted, set()
        try:
            if noted:
                self.show(noted, now=time.time())
        except Exception:
            self.note(noted)
            raise
        if time.monotonic() - self._swept_at >= SWEEP_SECONDS:
            self._sweep()
            self._swept_at = time.monotonic()

    def show(self, run_ids: Collection[int], *, now: float) -> None:
        """Show runs as they are now, and forget those that are gone."""
        sights = self._run_snapshots.of(run_ids)
        for sight in sights:
            self._live.show(_view(sight, now=now))
        for run_id in set(run_ids) - {sight.run.id for sight in sights}:
            self._live.drop(run_id)

    def _sweep(self) -> None:
        shown = {view.run.id for view in self._live.active(time.time())}
        for run_id in shown - self._run_snapshots.existing(shown) if shown else ():
            self._live.drop(run_id)


def _view(sight: StoredRunView, *, now: float) -> RunView:
    return RunView(
        run=sight.run,
        row=sight.row,
        policy=sight.policy,
        alerts=sight.alerts,
        expected_step_seconds=sight.outlook.expected_step_seconds,
        updated_at=now,
        advice=sight.outlook.advice,
        adaptation=sight.adaptation,
        proposed=sight.outlook.proposed,
    )
