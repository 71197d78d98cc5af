"""The outbox: notifications that wait for their delivery."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import structlog
from sqlalchemy import ARRAY, BigInteger, ColumnElement, Double, Engine, Select, any_, bindparam, func, select, update

from trmon.domain.alerts.delivery import Delivery, DeliveryContext, DeliveryState
from trmon.domain.alerts.muting import DeliveryUpdate
from trmon.domain.ports import SLOTS, Fences
from trmon.store.repositories.delivery_context import read_delivery_context
from trmon.store.repositories.leases import check_fences
from trmon.store.rows.alert_rows import decode_deliveries
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction

log = structlog.get_logger(__name__)

WAITING = (DeliveryState.DUE.value, DeliveryState.HELD.value, DeliveryState.STANDING.value)


def _select_due(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Return the query for due deliveries; it is built once, since building takes longer than running it."""
    table = tables.delivery.c
    is_wanted = table.receiver.not_in(bindparam("exclude_receivers", expanding=True))
    due = select(tables.delivery).where(
        table.state.in_(WAITING), table.due_at <= bindparam("now"), is_wanted, *conditions
    )
    return due.order_by(table.due_at, table.id).limit(bindparam("limit"))


_SLOTS = any_(bindparam("slots", type_=ARRAY(BigInteger)))
_DUE = _select_due()
_DUE_IN_SLOTS = _select_due(func.coalesce(tables.delivery.c.run_id, 0) % SLOTS == _SLOTS)


class Outbox:
    """The deliveries that wait; an update is durable when `record` returns."""

    def __init__(self, reader: Engine, writer: GroupCommit) -> None:
        self._reader = reader
        self._writer = writer

    def due(
        self,
        *,
        now: float,
        limit: int = 100,
        slots: Collection[int] | None = None,
        exclude_receivers: Collection[str] = (),
    ) -> list[Delivery]:
        """Return the deliveries that are due, of the runs in some slots or all, the longest overdue first.

        A delivery whose notification cannot be decoded becomes dead, with the error.
        """
        parameters = {"now": now, "limit": limit, "exclude_receivers": list(exclude_receivers)}
        with self._reader.connect() as connection:
            if slots is None:
                rows = connection.execute(_DUE, parameters).all()
            else:
                rows = connection.execute(_DUE_IN_SLOTS, {**parameters, "slots": list(slots)}).all()
        deliveries, errors = decode_deliveries(rows)
        if errors:
            self._quarantine(errors)
        return deliveries

    def delivery_context(self, run_id: int, *, now: float) -> DeliveryContext:
        """Return the state of a run that decides about its deliveries, as one snapshot. Errors: NotFound."""
        with self._reader.connect() as connection:
            return read_delivery_context(connection, run_id, now=now)

    def mark_tried(self, delivery_ids: Collection[int], *, now: float, fences: Fences | None = None) -> None:
        """Record, before they are sent, that deliveries are tried, if the fences still hold. Errors: Fenced."""
        table = tables.delivery
        statement = update(table).where(table.c.id.in_(delivery_ids)).values(tried_at=now)

        def write(transaction: Transaction) -> None:
            check_fences(transaction.connection, fences or {})
            transaction.connection.execute(statement)

        self._writer.submit(write).result()

    def record(self, updates: Sequence[DeliveryUpdate], *, fences: Fences | None = None) -> None:
        """Write updates of deliveries in one transaction, if the fences still hold. Errors: Fenced."""
        rows = [_row(update) for update in updates]
        table = tables.delivery.c
        tried_at = func.coalesce(bindparam("newly_tried_at", type_=Double), table.tried_at)
        statement = update(tables.delivery).where(table.id == bindparam("updated_id")).values(tried_at=tried_at)

        def write(transaction: Transaction) -> None:
            check_fences(transaction.connection, fences or {})
            transaction.connection.execute(statement, rows)

        self._writer.submit(write).result()

    def _quarantine(self, errors: Mapping[int, str]) -> None:
        """Mark deliveries as dead without waiting for the write: until it succeeds, the next read tries again."""
        log.error("notifications_undecodable", errors=dict(errors))
        table = tables.delivery.c
        waits = (table.id == bindparam("undecodable_id")) & table.state.in_(WAITING)
        statement = update(tables.delivery).where(waits).values(state=DeliveryState.DEAD.value)
        rows = [
            {"undecodable_id": id_, "last_error": f"the stored notification cannot be decoded: {error}"}
            for id_, error in errors.items()
        ]
        self._writer.submit(lambda transaction: transaction.connection.execute(statement, rows))

    def counts(self) -> dict[str, int]:
        """Return how many deliveries are in each state."""
        table = tables.delivery.c
        with self._reader.connect() as connection:
            counted = connection.execute(select(table.state, func.count()).group_by(table.state))
            found = {row[0]: row[1] for row in counted}
        return {state.value: found.get(state.value, 0) for state in DeliveryState}


def _row(update: DeliveryUpdate) -> dict[str, Any]:
    return {
        "updated_id": update.delivery_id,
        "state": update.state.value,
        "due_at": update.due_at,
        "attempts": update.attempts,
        "rounds": update.rounds,
        "newly_tried_at": update.tried_at,
        "last_error": update.error,
        "muted": update.mute and update.mute.value,
    }
