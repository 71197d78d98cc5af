"""Alerts and their transitions, for readers."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Engine, func, select

from trmon.domain.access import Access
from trmon.domain.alerts import Alert, AlertEvent, AlertState
from trmon.domain.identity import RunKey
from trmon.store import schema
from trmon.store.alertrows import alert_of, event_of
from trmon.store.page import Page, decode, page
from trmon.store.runrows import visible


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAlert:
    """An alert with its id and the run it is about."""

    id: int
    run: RunKey
    alert: Alert


class Alerts:
    """What rules said of runs."""

    def __init__(self, reader: Engine) -> None:
        self._reader = reader

    def list(
        self,
        *,
        access: Access,
        project: str | None = None,
        run: str | None = None,
        state: AlertState | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[ListedAlert]:
        """Return alerts, newest first. Errors: InvalidInput for a cursor that is none."""
        table, of_run = schema.alert, schema.run.c
        found = select(table, of_run.project, of_run.name).join(schema.run).where(visible(access))
        wanted = {of_run.project: project, of_run.name: run, table.c.state: state and state.value}
        found = found.where(*(column == value for column, value in wanted.items() if value is not None))
        if after is not None:
            found = found.where(table.c.id < decode(after, length=1)[0])
        with self._reader.connect() as connection:
            rows = connection.execute(found.order_by(table.c.id.desc()).limit(limit + 1)).all()
        alerts = [ListedAlert(id=row.id, run=RunKey(row.project, row.name), alert=alert_of(row)) for row in rows]
        return page(alerts, limit=limit, key=lambda listed: (listed.id,))

    def events(self, identity: str, *, access: Access, limit: int = 500) -> tuple[AlertEvent, ...]:
        """Return the newest transitions of an alert's episodes, oldest first."""
        table = schema.alert_event
        found = select(table).join(schema.run).where(table.c.identity == identity, visible(access))
        with self._reader.connect() as connection:
            rows = connection.execute(found.order_by(table.c.id.desc()).limit(limit)).all()
        return tuple(event_of(row) for row in reversed(rows))

    def counts(self, *, access: Access) -> dict[AlertState, int]:
        """Return how many alerts are in each state."""
        table = schema.alert
        counted = select(table.c.state, func.count()).join(schema.run).where(visible(access)).group_by(table.c.state)
        with self._reader.connect() as connection:
            found = {AlertState(state): count for state, count in connection.execute(counted)}
        return {state: found.get(state, 0) for state in AlertState if state is not AlertState.DROPPED}
