"""Write the rows of the event stream."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from trmon.domain.state.run_update import Event
from trmon.store.database import advisory_locks
from trmon.store.database.advisory_locks import AdvisoryLock
from trmon.store.database.upsert import insert_rows
from trmon.store.schema import tables


def append_events(connection: Connection, events: Sequence[tuple[int, Event]]) -> None:
    """Append events, each with the id of its run, as the last statement of a transaction.

    Followers ask for ids larger than the last one they saw, so ids must become visible in order: a lock allows one
    process at a time between its first event and its commit.
    """
    if not events:
        return
    advisory_locks.lock_exclusively(connection, AdvisoryLock.EVENTS)
    rows = [{"run_id": run_id, "at": event.at, "kind": event.kind, "data": event.data} for run_id, event in events]
    insert_rows(connection, tables.event, rows=rows)
