"""Moves all that can move to a lake at once, and deletes from the database what has moved."""

from __future__ import annotations

from tests.fixtures.waiting import eventually
from tests.store.builders import NOW
from trmon.store import Store


def move_to_lake(store: Store, lake_url: str, *, now: float = NOW + 1000, after_seconds: float = 0.0) -> None:
    """Move what is idle at a time, which must be something."""
    mover = store.lake(lake_url).mover
    assert mover.move_next(now=now, after_seconds=after_seconds) is not None
    while mover.move_next(now=now, after_seconds=after_seconds) is not None:
        pass


def delete_moved(store: Store) -> None:
    """Delete the large rows of moved attempts now; the mover of a running service does so in time, perhaps before."""
    eventually(store.moved_rows.delete, lambda n_deleted: n_deleted == 0)
