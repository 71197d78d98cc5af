"""The outbox: notifications wait here until their receiver took them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ARRAY, BigInteger, ColumnElement, Double, Engine, Select, any_, bindparam, func, select, update

from trmon.domain.alerts.alert import Delivery, DeliveryState
from trmon.domain.alerts.muting import DeliveryContext
from trmon.domain.alerts.settlement import Settlement
from trmon.domain.model.slots import SLOTS, Fences
from trmon.store.repositories.delivery_context import read_delivery_context
from trmon.store.repositories.leases import check_fences
from trmon.store.rows.alert_rows import delivery_from_row
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction

WAITING = (DeliveryState.DUE.value, DeliveryState.HELD.value, DeliveryState.STANDING.value)


def _overdue(*also: ColumnElement[bool]) -> Select[Any]:
    """Return the query for what is to be tried, which is asked each second; making it costs more than asking it."""
    table = tables.delivery.c
    wanted = table.receiver.not_in(bindparam("without", expanding=True))
    overdue = select(tables.delivery).where(table.state.in_(WAITING), table.due_at <= bindparam("now"), wanted, *also)
    return overdue.order_by(table.due_at, table.id).limit(bindparam("most"))


_SLOTS = any_(bindparam("slots", type_=ARRAY(BigInteger)))
_OVERDUE = _overdue()
_OVERDUE_IN_SLOTS = _overdue(func.coalesce(tables.delivery.c.run_id, 0) % SLOTS == _SLOTS)


class Outbox:
    """Deliveries by what became of them; what is settled is on disk when the call returns."""

    def __init__(self, reader: Engine, writer: GroupCommit) -> None:
        self._reader = reader
        self._writer = writer

    def due(
        self, *, now: float, limit: int = 100, slots: Collection[int] | None = None, without: Collection[str] = ()
    ) -> list[Delivery]:
        """Return what is to be tried by now, of the runs of some slots or all, the longest overdue first.

        Args: without: receivers that have enough to do.
        """
        given = {"now": now, "most": limit, "without": list(without)}
        with self._reader.connect() as connection:
            if slots is None:
                rows = connection.execute(_OVERDUE, given).all()
            else:
                rows = connection.execute(_OVERDUE_IN_SLOTS, {**given, "slots": list(slots)}).all()
        return [delivery_from_row(row) for row in rows]

    def delivery_context(self, run_id: int, *, now: float) -> DeliveryContext:
        """Return what is true of a run now, all of it at one moment. Errors: NotFound."""
        with self._reader.connect() as connection:
            return read_delivery_context(connection, run_id, now=now)

    def settle(self, settlements: Sequence[Settlement], *, fences: Fences | None = None) -> None:
        """Note what became of deliveries, all of it together, while these slots are held. Errors: Fenced."""
        rows = [_row(settlement) for settlement in settlements]
        table = tables.delivery.c
        asked_at = func.coalesce(bindparam("asked_at", type_=Double), table.tried_at)
        settled = update(tables.delivery).where(table.id == bindparam("settled_id")).values(tried_at=asked_at)

        def write(transaction: Transaction) -> None:
            check_fences(transaction.connection, fences or {})
            transaction.connection.execute(settled, rows)

        self._writer.submit(write).result()

    def counts(self) -> dict[str, int]:
        """Return how many deliveries are in each state."""
        table = tables.delivery.c
        with self._reader.connect() as connection:
            counted = connection.execute(select(table.state, func.count()).group_by(table.state))
            found = {row[0]: row[1] for row in counted}
        return {state.value: found.get(state.value, 0) for state in DeliveryState}


def _row(settlement: Settlement) -> dict[str, Any]:
    return {
        "settled_id": settlement.delivery_id,
        "state": settlement.state.value,
        "due_at": settlement.due_at,
        "attempts": settlement.attempts,
        "rounds": settlement.rounds,
        "asked_at": settlement.tried_at,
        "last_error": settlement.error,
        "muted": settlement.mute and settlement.mute.value,
    }
