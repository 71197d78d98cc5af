"""Deliveries with their outcomes: list them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, select

from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.delivery import DeliveryState
from trmon.domain.model.access import Access
from trmon.domain.model.identity import RunKey
from trmon.store.repositories.keyset_page import Page, decode_cursor, page_of
from trmon.store.rows.row_mapping import RowMapping
from trmon.store.rows.run_rows import visible_runs
from trmon.store.schema import tables


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDelivery:
    """A delivery of a run, its state, the newest error, and why it is muted; `body` is the stored notification."""

    run: RunKey
    id: int
    receiver: str
    dedup_key: str
    body: dict[str, Any]
    state: DeliveryState
    told_state: AlertState
    attempts: int
    rounds: int
    made_at: float
    due_at: float
    tried_at: float | None
    last_error: str | None
    muted: str | None


_LISTED = RowMapping(ListedDelivery, composed={"run"})


class Deliveries:
    """Reads the deliveries of runs."""

    def __init__(self, reader: Engine) -> None:
        self._reader = reader

    def list(
        self,
        *,
        access: Access,
        state: DeliveryState | None = None,
        project: str | None = None,
        run: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[ListedDelivery]:
        """Return deliveries, newest first. Errors: InvalidInput for an invalid cursor."""
        table, of_run = tables.delivery, tables.run.c
        found = select(table, of_run.project, of_run.name).join(tables.run).where(visible_runs(access))
        if state is not None:
            found = found.where(table.c.state == state.value)
        if project is not None:
            found = found.where(of_run.project == project)
        if run is not None:
            found = found.where(of_run.name == run)
        if after is not None:
            found = found.where(table.c.id < decode_cursor(after, length=1)[0])
        with self._reader.connect() as connection:
            rows = connection.execute(found.order_by(table.c.id.desc()).limit(limit + 1)).all()
        return page_of([_listed(row) for row in rows], limit=limit, key=lambda listed: (listed.id,))


def _listed(row: Any) -> ListedDelivery:
    return _LISTED.from_row(row, run=RunKey(row.project, row.name))
