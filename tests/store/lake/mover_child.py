"""A mover in a process of its own, which kills itself at a point of its work."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from trmon.store import Store


class KillingPoint:
    """Kills this process at a point."""

    def __init__(self, kill_at: str) -> None:
        self._kill_at = kill_at

    def at_point(self, name: str) -> None:
        """Pass a point, or die."""
        if name == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def may_continue(self) -> bool:
        """Pass the point before a transaction that deletes rows."""
        self.at_point("deleting")
        return True


def move_all(url: str, lake_url: str, *, now: float, kill_at: str, environment: Mapping[str, str]) -> None:
    """Move everything. Args: kill_at: the point to die at, empty for none."""
    os.environ.update(environment)
    point = KillingPoint(kill_at)
    store = Store.open(url)
    mover = store.lake(lake_url).mover
    while mover.move_next(now=now, after_seconds=50.0, at_point=point.at_point) is not None:
        store.moved_rows.delete(may_continue=point.may_continue)
    mover.delete_runs(now=now)
    store.close()
