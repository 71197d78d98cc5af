"""The outbox: notifications wait here until their receiver took them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, func, select, update

from trmon.domain.alerts import Delivery
from trmon.store import schema
from trmon.store.alertrows import DEAD, DELIVERED, DUE, delivery_of
from trmon.store.group import Transaction
from trmon.store.writer import GroupCommit


class Outbox:
    """Deliveries by what became of them; each change is on disk when its call returns."""

    def __init__(self, reader: Engine, writer: GroupCommit) -> None:
        self._reader = reader
        self._writer = writer

    def due(self, *, now: float, limit: int = 100) -> list[Delivery]:
        """Return what is to be tried by now, the longest overdue first."""
        table = schema.delivery.c
        overdue = select(schema.delivery).where(table.state == DUE, table.due_at <= now)
        with self._reader.connect() as connection:
            rows = connection.execute(overdue.order_by(table.due_at, table.id).limit(limit)).all()
        return [delivery_of(row) for row in rows]

    def delivered(self, delivery_id: int, *, now: float) -> None:
        """Note that the receiver took it."""
        self._change(delivery_id, state=DELIVERED, tried_at=now, last_error=None)

    def failed(self, delivery_id: int, *, now: float, retry_at: float, error: str) -> None:
        """Note a failed attempt and when to try again."""
        self._change(delivery_id, tried_at=now, due_at=retry_at, last_error=error)

    def dead(self, delivery_id: int, *, now: float, error: str) -> None:
        """Note a last failed attempt: it is given up."""
        self._change(delivery_id, state=DEAD, tried_at=now, last_error=error)

    def counts(self) -> dict[str, int]:
        """Return how many deliveries are due, delivered and dead."""
        table = schema.delivery.c
        with self._reader.connect() as connection:
            counted = connection.execute(select(table.state, func.count()).group_by(table.state))
            found = {row[0]: row[1] for row in counted}
        return {state: found.get(state, 0) for state in (DUE, DELIVERED, DEAD)}

    def _change(self, delivery_id: int, **values: Any) -> None:
        table = schema.delivery
        changed = update(table).where(table.c.id == delivery_id).values(attempts=table.c.attempts + 1, **values)

        def change(transaction: Transaction) -> None:
            transaction.connection.execute(changed)

        self._writer.submit(change).result()
