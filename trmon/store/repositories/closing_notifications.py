"""Farewells: what is still told of a run under its name when either goes, so that no incident stays open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs
from sqlalchemy import select, update

from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.closing_delivery import closing_delivery
from trmon.domain.alerts.delivery import Delivery, DeliveryState
from trmon.domain.alerts.transitions import TransitionReason
from trmon.store.rows.alert_rows import decode_deliveries, write_deliveries
from trmon.store.schema import tables
from trmon.store.writing.transaction import Transaction

IN_FLIGHT_SECONDS = 15.0
"""How long what was never tried may be on its way, from another process too."""

Heard = dict[tuple[str, str | None], Delivery]
"""What was told by receiver and episode."""


def notify_of_deletion(transaction: Transaction, run_id: int, *, now: float) -> None:
    """Let every receiver that may have heard an alert of a run fire hear that it is over; then the run may go.

    What waits to say so stays in the outbox, as a delivery of no run; for alerts that fire, one is made.
    """
    table, deliveries = tables.delivery, _of_alerts(transaction, run_id)
    heard = _heard(deliveries)
    waiting = [one for one in deliveries if _is_end(one) and _waits(one) and _place(one) in heard]
    stays = {"run_id": None, "state": DeliveryState.DUE.value}
    transaction.connection.execute(update(table).where(table.c.id.in_([one.id for one in waiting])).values(**stays))
    transaction.addressed.update(one.receiver for one in waiting)
    _end(transaction, _open(deliveries), reason=TransitionReason.DELETED, now=now)


def notify_of_rename(transaction: Transaction, run_id: int, *, name: str, now: float) -> None:
    """Let every receiver that may have heard an alert of a run fire hear of it under the run's new name.

    Receivers know alerts by names: under the former one it is over, or nobody would ever close what was opened.
    """
    table, heard = tables.delivery, _open(_of_alerts(transaction, run_id))
    _end(transaction, heard, reason=TransitionReason.RENAMED, now=now)
    for one in heard:
        told = one.notification
        notification = structs.replace(told, run=structs.replace(told.run, run=name))
        again = {"body": notification, "state": DeliveryState.STANDING.value, "due_at": now}
        transaction.connection.execute(update(table).where(table.c.id == one.id).values(**again))


def _of_alerts(transaction: Transaction, run_id: int) -> list[Delivery]:
    table = tables.delivery
    found = select(table).where(table.c.run_id == run_id, table.c.episode.is_not(None)).order_by(table.c.id)
    deliveries, _ = decode_deliveries(transaction.connection.execute(found))
    return deliveries


def _heard(deliveries: Sequence[Delivery]) -> Heard:
    return {_place(one): one for one in deliveries if _may_have_been_heard(one)}


def _open(deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return what may have been heard, the newest of each receiver and alert, where no end has been made."""
    ended = {_place(one) for one in deliveries if _is_end(one)}
    return [one for place, one in _heard(deliveries).items() if place not in ended]


def _end(transaction: Transaction, heard: Sequence[Delivery], *, reason: TransitionReason, now: float) -> None:
    made = [_farewell(one, reason=reason, now=now) for one in heard]
    write_deliveries(transaction.connection, made)
    transaction.addressed.update(one.receiver for one in made)


def _farewell(heard: Delivery, *, reason: TransitionReason, now: float) -> Delivery:
    was_tried = heard.attempts > 0 or heard.rounds > 0
    made = closing_delivery(heard, reason=reason, now=now)
    return made if was_tried else replace(made, due_at=now + IN_FLIGHT_SECONDS)


def _is_end(one: Delivery) -> bool:
    return one.told_state is AlertState.RESOLVED


def _may_have_been_heard(one: Delivery) -> bool:
    was_tried = one.attempts > 0 or one.rounds > 0
    return one.told_state is AlertState.FIRING and (was_tried or one.state is DeliveryState.DUE)


def _waits(one: Delivery) -> bool:
    return one.state in (DeliveryState.DUE, DeliveryState.HELD)


def _place(one: Delivery) -> tuple[str, str | None]:
    return one.receiver, one.episode
