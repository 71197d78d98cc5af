"""A mover in a process of its own, which kills itself at a point of its work."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from multiprocessing.connection import Connection

from trmon.store import Store


class KillingPoint:
    """Kills this process when as many points as given have been passed."""

    def __init__(self, kill_at: int, passed: Connection) -> None:
        self._left = kill_at
        self._passed = passed

    def at_point(self, name: str) -> None:
        """Pass a point, and name it."""
        self._left -= 1
        self._passed.send(name)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def may_continue(self) -> bool:
        """Pass the point before a transaction that deletes rows."""
        self.at_point("deleting")
        return True


def move_all(
    url: str, lake_url: str, *, now: float, kill_at: int, passed: Connection, environment: Mapping[str, str]
) -> None:
    """Move everything. Args: kill_at: the number of the point to die at; passed: is sent the name of each point."""
    os.environ.update(environment)
    point = KillingPoint(kill_at, passed)
    store = Store.open(url)
    mover = store.lake(lake_url).mover
    while mover.move_next(now=now, after_seconds=50.0, at_point=point.at_point) is not None:
        store.moved_rows.delete(may_continue=point.may_continue)
    mover.delete_runs(now=now)
    store.close()
