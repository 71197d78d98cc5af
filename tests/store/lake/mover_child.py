"""A mover in a process of its own, which kills itself at a point of its work."""

from __future__ import annotations

import os
import signal
import sys

from trmon.store import Store


class KillingPoint:
    """Kills this process when as many points as given have been passed."""

    def __init__(self, kill_at: int) -> None:
        self._left = kill_at

    def at_point(self, name: str) -> None:
        """Pass a point, and name it."""
        self._left -= 1
        print(name, flush=True)
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def may_continue(self) -> bool:
        """Pass the point before a transaction that deletes rows."""
        self.at_point("deleting")
        return True


def main() -> None:
    """Move everything. Args: the database, the lake, the time in seconds, and the number of the point to die at."""
    url, lake_url, now, kill_at = sys.argv[1:]
    point = KillingPoint(int(kill_at))
    store = Store.open(url)
    mover = store.lake(lake_url).mover
    while mover.move_next(now=float(now), after_seconds=50.0, at_point=point.at_point) is not None:
        store.moved_rows.delete(may_continue=point.may_continue)
    mover.delete_runs(now=float(now))
    store.close()


if __name__ == "__main__":
    main()
