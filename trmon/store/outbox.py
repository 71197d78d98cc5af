"""The outbox: notifications wait here until their receiver took them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, func, or_, select, update

from trmon.domain.alerts import AlertState, Delivery, DeliveryState
from trmon.domain.muting import Mute, Situation
from trmon.store import schema
from trmon.store.alertrows import alert_of, delivery_of, event_of
from trmon.store.group import Transaction
from trmon.store.runrows import read_run
from trmon.store.silences import read_silences
from trmon.store.writer import GroupCommit

WAITING = (DeliveryState.DUE.value, DeliveryState.HELD.value, DeliveryState.STANDING.value)
MAX_EVENTS = 500


class Outbox:
    """Deliveries by what became of them; each change is on disk when its call returns."""

    def __init__(self, reader: Engine, writer: GroupCommit) -> None:
        self._reader = reader
        self._writer = writer

    def due(self, *, now: float, limit: int = 100) -> list[Delivery]:
        """Return what is to be tried by now, the longest overdue first."""
        table = schema.delivery.c
        overdue = select(schema.delivery).where(table.state.in_(WAITING), table.due_at <= now)
        with self._reader.connect() as connection:
            rows = connection.execute(overdue.order_by(table.due_at, table.id).limit(limit)).all()
        return [delivery_of(row) for row in rows]

    def situation(self, run_id: int, *, now: float) -> Situation:
        """Return what is true of a run now, all of it at one moment. Errors: NotFound."""
        alert, delivery = schema.alert.c, schema.delivery.c
        firing = select(schema.alert).where(alert.run_id == run_id, alert.state == AlertState.FIRING.value)
        tried = select(delivery.receiver, delivery.episode).where(
            delivery.run_id == run_id,
            delivery.told_state == AlertState.FIRING.value,
            or_(delivery.attempts > 0, delivery.rounds > 0),
        )
        events = select(schema.alert_event).where(schema.alert_event.c.run_id == run_id)
        newest = events.order_by(schema.alert_event.c.id.desc()).limit(MAX_EVENTS)
        with self._reader.connect() as connection:
            run = read_run(connection, schema.run.c.id == run_id, name=str(run_id))
            rows = connection.execute(firing.order_by(alert.id)).all()
            return Situation(
                run=run,
                firing=tuple(alert_of(row) for row in rows),
                tried=frozenset((row.receiver, row.episode) for row in connection.execute(tried)),
                acked=frozenset(alert_of(row).episode for row in rows if row.acked_at is not None),
                silences=read_silences(connection, project=run.key.project, now=now),
                events=tuple(event_of(row) for row in connection.execute(newest)),
            )

    def delivered(self, delivery_id: int, *, now: float, again_at: float | None = None) -> None:
        """Note that the receiver took it, and when it is told again if it is."""
        table = schema.delivery.c
        told = {"rounds": table.rounds + 1, "tried_at": now, "last_error": None, "muted": None}
        if again_at is None:
            self._change(delivery_id, state=DeliveryState.DELIVERED.value, attempts=table.attempts + 1, **told)
        else:
            self._change(delivery_id, state=DeliveryState.STANDING.value, attempts=0, due_at=again_at, **told)

    def failed(self, delivery_id: int, *, now: float, retry_at: float, error: str) -> None:
        """Note a failed attempt and when to try again."""
        attempts = schema.delivery.c.attempts + 1
        self._change(delivery_id, attempts=attempts, tried_at=now, due_at=retry_at, last_error=error)

    def dead(self, delivery_id: int, *, now: float, error: str) -> None:
        """Note a last failed attempt: it is given up."""
        attempts = schema.delivery.c.attempts + 1
        self._change(delivery_id, state=DeliveryState.DEAD.value, attempts=attempts, tried_at=now, last_error=error)

    def muted(self, delivery_id: int, *, reason: Mute) -> None:
        """Note that it is not told, and why."""
        self._change(delivery_id, state=DeliveryState.MUTED.value, muted=reason.value)

    def held(self, delivery_id: int, *, reason: Mute, until: float) -> None:
        """Note that it is not told for now, why, and when to look again."""
        self._change(delivery_id, state=DeliveryState.HELD.value, muted=reason.value, due_at=until)

    def ended(self, delivery_id: int) -> None:
        """Note that what was told needs no telling again."""
        self._change(delivery_id, state=DeliveryState.DELIVERED.value)

    def counts(self) -> dict[str, int]:
        """Return how many deliveries are in each state."""
        table = schema.delivery.c
        with self._reader.connect() as connection:
            counted = connection.execute(select(table.state, func.count()).group_by(table.state))
            found = {row[0]: row[1] for row in counted}
        return {state.value: found.get(state.value, 0) for state in DeliveryState}

    def _change(self, delivery_id: int, **values: Any) -> None:
        table = schema.delivery
        changed = update(table).where(table.c.id == delivery_id).values(**values)

        def change(transaction: Transaction) -> None:
            transaction.connection.execute(changed)

        self._writer.submit(change).result()
