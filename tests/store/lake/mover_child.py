"""A mover in a separate process, which kills itself at a point of its work."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping

from trmon.store import Store


def move_all(url: str, lake_url: str, *, now: float, kill_at: str, environment: Mapping[str, str]) -> None:
    """Move everything. Args: kill_at: the point to die at, empty for none; "deleting" is before a deletion of rows."""

    def at_point(name: str) -> bool:
        if name == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    os.environ.update(environment)
    store = Store.open(url)
    lake = store.lake(lake_url)
    while lake.move_next(now=now, after_seconds=50.0, at_point=at_point) is not None:
        store.moved_rows.delete(may_continue=lambda: at_point("deleting"))
    lake.delete_runs(now=now)
    store.close()
