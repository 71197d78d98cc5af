"""How events of the stream are written."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from trmon.domain.state.run_update import Event
from trmon.store.database import advisory_locks
from trmon.store.database.advisory_locks import AdvisoryLock
from trmon.store.database.upsert import insert_rows
from trmon.store.schema import tables


def write_stream(connection: Connection, events: Sequence[tuple[int, Event]]) -> None:
    """Add events to the stream, each with the id of its run; to be called last of all in a transaction.

    Whoever follows the stream asks for larger ids than the last one it saw: ids must become visible in their order,
    so only one process at a time is between its first event and its commit.
    """
    if not events:
        return
    advisory_locks.lock_exclusively(connection, AdvisoryLock.EVENTS)
    rows = [{"run_id": run_id, "at": event.at, "kind": event.kind, "data": event.data} for run_id, event in events]
    insert_rows(connection, tables.event, rows=rows)
