"""Moves all that can move to a lake at once, and deletes from the database what has moved."""

from __future__ import annotations

import time

from deltalake.exceptions import CommitFailedError

from tests.fixtures.waiting import eventually
from tests.store.builders import NOW
from trmon.domain.errors import NotReady
from trmon.store import Store

N_TRIES = 20


def move_to_lake(store: Store, lake_url: str, *, now: float = NOW + 1000, after_seconds: float = 0.0) -> None:
    """Move what is idle at a time, which must be something."""
    mover, n_moved, n_conflicts = store.lake(lake_url).mover, 0, 0
    while True:
        try:
            moved = mover.move_next(now=now, after_seconds=after_seconds)
        except NotReady as error:
            # The mover of a running service completes the same batch: one of the two commits first.
            n_conflicts += 1
            if not isinstance(error.__cause__, CommitFailedError) or n_conflicts == N_TRIES:
                raise
            time.sleep(0.1)
        else:
            if moved is None:
                break
            n_moved += 1
    assert n_moved + n_conflicts > 0


def delete_moved(store: Store) -> None:
    """Delete the large rows of moved attempts now; the mover of a running service does so in time, perhaps before."""
    eventually(store.moved_rows.delete, lambda n_deleted: n_deleted == 0)
