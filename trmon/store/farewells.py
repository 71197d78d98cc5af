"""Farewells: what the outbox still tells of a run whose rows go, so that no incident stays open at a receiver."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import select, update

from trmon.domain.alerts.alert import AlertState, Delivery, DeliveryState
from trmon.domain.alerts.deliveries import farewell
from trmon.store import schema
from trmon.store.alertrows import delivery_of, write_deliveries
from trmon.store.writing.group import Transaction

IN_FLIGHT_SECONDS = 15.0
"""How long what was never tried may be on its way, from another process too."""

Heard = dict[tuple[str, str | None], Delivery]
"""What was told by receiver and episode."""


def tell_of_deletion(transaction: Transaction, run_id: int, *, now: float) -> None:
    """Let every receiver that may have heard an alert of a run fire hear that it is over; then the run may go.

    What waits to say so stays in the outbox, as a delivery of no run; for alerts that fire, one is made.
    """
    table = schema.delivery
    found = select(table).where(table.c.run_id == run_id, table.c.episode.is_not(None)).order_by(table.c.id)
    deliveries = [delivery_of(row) for row in transaction.connection.execute(found)]
    heard: Heard = {_place(one): one for one in deliveries if _may_have_been_heard(one)}
    ends = [one for one in deliveries if one.told_state is AlertState.RESOLVED]
    waiting = [one.id for one in ends if _waits(one) and _place(one) in heard]
    stays = {"run_id": None, "state": DeliveryState.DUE.value}
    transaction.connection.execute(update(table).where(table.c.id.in_(waiting)).values(**stays))
    for end in ends:
        heard.pop(_place(end), None)
    made = [_made(one, now=now) for one in heard.values()]
    write_deliveries(transaction.connection, made)
    transaction.addressed.update(one.receiver for one in (*made, *ends))


def _made(heard: Delivery, *, now: float) -> Delivery:
    was_tried = heard.attempts > 0 or heard.rounds > 0
    made = farewell(heard, now=now)
    return made if was_tried else replace(made, due_at=now + IN_FLIGHT_SECONDS)


def _may_have_been_heard(one: Delivery) -> bool:
    was_tried = one.attempts > 0 or one.rounds > 0
    return one.told_state is AlertState.FIRING and (was_tried or one.state is DeliveryState.DUE)


def _waits(one: Delivery) -> bool:
    return one.state in (DeliveryState.DUE, DeliveryState.HELD)


def _place(one: Delivery) -> tuple[str, str | None]:
    return one.receiver, one.episode
