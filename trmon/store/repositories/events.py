"""The event stream: ids only grow, so a follower continues after the last one it has seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from trmon.domain.access import Access
from trmon.domain.identity import RunKey
from trmon.domain.pipeline.publish import Event
from trmon.store.rows.runs import has_name, visible_runs
from trmon.store.schema import tables
from trmon.store.writing.repository import Reader


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEvent:
    """An event with its id in the stream and its run."""

    id: int
    run_id: int
    key: RunKey
    event: Event


class Events(Reader):
    """Reads the events of all runs; retention deletes old ones."""

    def after(self, event_id: int, *, access: Access, run: RunKey | None = None, limit: int = 500) -> list[StoredEvent]:
        """Return the events with a larger id that the caller may see, oldest first."""
        table = tables.event
        statement = (
            select(table, tables.run.c.project, tables.run.c.name)
            .join(tables.run)
            .where(table.c.id > event_id, visible_runs(access))
        )
        if run is not None:
            statement = statement.where(has_name(run))
        return [_stored(row) for row in self._rows(statement.order_by(table.c.id).limit(limit))]

    def read_after(
        self, event_id: int, *, access: Access, run: RunKey | None, limit: int
    ) -> tuple[list[StoredEvent], int]:
        """Return the events as `after` does, and the id to continue from, which skips events of other runs."""
        # Ids become visible in order: no new event appears below a visible one.
        newest = self.last_id()
        found = self.after(event_id, access=access, run=run, limit=limit)
        if len(found) == limit:
            return found, found[-1].id
        return found, max(event_id, newest, *(stored.id for stored in found))

    def last_id(self) -> int:
        """Return the id of the newest event; 0 without events."""
        return self._values(select(func.max(tables.event.c.id)))[0] or 0


def _stored(row: Any) -> StoredEvent:
    event = Event(kind=row.kind, data=row.data, at=row.at)
    return StoredEvent(id=row.id, run_id=row.run_id, key=RunKey(row.project, row.name), event=event)
