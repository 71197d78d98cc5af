"""Resolve notices for a run that is deleted or renamed, so that no incident stays open at a receiver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs
from sqlalchemy import select, update

from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.delivery import Delivery, DeliveryState
from trmon.domain.alerts.owner_change import closing_delivery
from trmon.domain.alerts.transitions import TransitionReason
from trmon.store.rows.alert_rows import decode_deliveries, write_deliveries
from trmon.store.schema import tables
from trmon.store.writing.transaction import Transaction

IN_FLIGHT_SECONDS = 15.0
"""How long the first attempt of a delivery may be in flight, possibly from another process."""

NotifiedDeliveries = dict[tuple[str, str | None], Delivery]
"""Firing notifications that may have arrived, by receiver and episode."""


def notify_of_deletion(transaction: Transaction, run_id: int, *, now: float) -> None:
    """Send a resolve notice to every receiver that may know a firing alert of a run, before the run is deleted.

    Waiting resolve notices stay in the outbox without their run; firing alerts get a new one.
    """
    table, deliveries = tables.delivery, _alert_deliveries(transaction, run_id)
    notified = _notified(deliveries)
    waiting = [one for one in deliveries if _is_resolve_notice(one) and _is_waiting(one) and _subject(one) in notified]
    stays = {"run_id": None, "state": DeliveryState.DUE.value}
    transaction.connection.execute(update(table).where(table.c.id.in_([one.id for one in waiting])).values(**stays))
    transaction.receivers.update(one.receiver for one in waiting)
    _resolve(transaction, _open(deliveries), reason=TransitionReason.DELETED, now=now)


def notify_of_rename(transaction: Transaction, run_id: int, *, name: str, now: float) -> None:
    """Send a resolve notice under the old name and the alert under the new name to every receiver that may know it.

    Receivers identify alerts by the run's name, so without the resolve notice the old incident would stay open.
    """
    table, notified = tables.delivery, _open(_alert_deliveries(transaction, run_id))
    _resolve(transaction, notified, reason=TransitionReason.RENAMED, now=now)
    for one in notified:
        run = structs.replace(one.notification.run, run=name)
        notification = structs.replace(one.notification, run=run)
        again = {"body": notification, "state": DeliveryState.STANDING.value, "due_at": now}
        transaction.connection.execute(update(table).where(table.c.id == one.id).values(**again))


def _alert_deliveries(transaction: Transaction, run_id: int) -> list[Delivery]:
    table = tables.delivery
    found = select(table).where(table.c.run_id == run_id, table.c.episode.is_not(None)).order_by(table.c.id)
    deliveries, _ = decode_deliveries(transaction.connection.execute(found))
    return deliveries


def _notified(deliveries: Sequence[Delivery]) -> NotifiedDeliveries:
    return {_subject(one): one for one in deliveries if _may_have_arrived(one)}


def _open(deliveries: Sequence[Delivery]) -> list[Delivery]:
    """Return the newest notification of each receiver and alert that may have arrived and has no resolve notice."""
    ended = {_subject(one) for one in deliveries if _is_resolve_notice(one)}
    return [one for subject, one in _notified(deliveries).items() if subject not in ended]


def _resolve(transaction: Transaction, notified: Sequence[Delivery], *, reason: TransitionReason, now: float) -> None:
    notices = [_resolve_notice(one, reason=reason, now=now) for one in notified]
    write_deliveries(transaction.connection, notices)
    transaction.receivers.update(one.receiver for one in notices)


def _resolve_notice(notified: Delivery, *, reason: TransitionReason, now: float) -> Delivery:
    was_tried = notified.attempts > 0 or notified.rounds > 0
    notice = closing_delivery(notified, reason=reason, now=now)
    return notice if was_tried else replace(notice, due_at=now + IN_FLIGHT_SECONDS)


def _is_resolve_notice(one: Delivery) -> bool:
    return one.told_state is AlertState.RESOLVED


def _may_have_arrived(one: Delivery) -> bool:
    was_tried = one.attempts > 0 or one.rounds > 0
    return one.told_state is AlertState.FIRING and (was_tried or one.state is DeliveryState.DUE)


def _is_waiting(one: Delivery) -> bool:
    return one.state in (DeliveryState.DUE, DeliveryState.HELD)


def _subject(one: Delivery) -> tuple[str, str | None]:
    return one.receiver, one.episode
