"""Deliveries: list them, and the outbox of those that wait."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import structlog
from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Double,
    Select,
    any_,
    bindparam,
    func,
    or_,
    select,
    update,
)

from trmon.domain.access import Access
from trmon.domain.alerts.alert import Acknowledgement, Alert, AlertState
from trmon.domain.alerts.delivery import Delivery, DeliveryContext, DeliveryState
from trmon.domain.alerts.muting import LATE_SECONDS, DeliveryUpdate
from trmon.domain.ownership import SLOTS, Fences
from trmon.store.repositories.leases import check_fences
from trmon.store.repositories.silences import read_silences
from trmon.store.rows.mapping import Page, RowMapping, where_given
from trmon.store.rows.runs import (
    ALERT_MAPPING,
    EVENT_MAPPING,
    decode_deliveries,
    read_acknowledgement,
    read_run,
    visible_runs,
)
from trmon.store.schema import tables
from trmon.store.writing.repository import Reader, Repository
from trmon.store.writing.transaction import Transaction
from trmon_client.api.alerts import DeliveryInfo

MAX_EVENTS = 500
_delivery, _alert, _run = tables.delivery.c, tables.alert.c, tables.run.c

Subject = tuple[str, str]
"""A receiver and an episode."""


def _read_alerts(
    connection: Connection, run_id: int, *, ended_after: float
) -> tuple[tuple[Alert, ...], dict[str, Acknowledgement]]:
    """Return the alerts that fire or ended recently, and who has which episode."""
    fires = _alert.state == AlertState.FIRING.value
    ended = (_alert.state == AlertState.RESOLVED.value) & (_alert.updated_at > ended_after)
    found = select(tables.alert).where(_alert.run_id == run_id, or_(fires, ended)).order_by(_alert.id)
    rows = connection.execute(found).all()
    alerts = tuple(map(ALERT_MAPPING.from_row, rows))
    acks = map(read_acknowledgement, rows)
    return alerts, {alert.episode: ack for alert, ack in zip(alerts, acks, strict=True) if ack is not None}


def _read_notified(
    connection: Connection, run_id: int, *, made_after: float
) -> tuple[dict[Subject, float], frozenset[Subject]]:
    """Return when the firing notification of each pair was tried, and the pairs for which one is due."""
    is_due = (_delivery.state == DeliveryState.DUE.value) & (_delivery.made_at >= made_after)
    columns = (_delivery.receiver, _delivery.episode, _delivery.tried_at, is_due.label("is_due"))
    of_firing = (_delivery.run_id == run_id, _delivery.told_state == AlertState.FIRING.value)
    rows = connection.execute(select(*columns).where(*of_firing, or_(_delivery.tried_at.is_not(None), is_due))).all()
    tried: dict[Subject, float] = {}
    for row in rows:
        if row.tried_at is not None:
            subject = (row.receiver, row.episode)
            tried[subject] = min(tried.get(subject, math.inf), row.tried_at)
    return tried, frozenset((row.receiver, row.episode) for row in rows if row.is_due)


log = structlog.get_logger(__name__)

WAITING = (DeliveryState.DUE.value, DeliveryState.HELD.value, DeliveryState.STANDING.value)


def _select_due(*conditions: ColumnElement[bool]) -> Select[Any]:
    """Return the query for due deliveries; it is built once, since building takes longer than running it."""
    is_wanted = _delivery.receiver.not_in(bindparam("exclude_receivers", expanding=True))
    due = select(tables.delivery).where(
        _delivery.state.in_(WAITING), _delivery.due_at <= bindparam("now"), is_wanted, *conditions
    )
    return due.order_by(_delivery.due_at, _delivery.id).limit(bindparam("limit"))


_SLOTS = any_(bindparam("slots", type_=ARRAY(BigInteger)))
_DUE = _select_due()
_DUE_IN_SLOTS = _select_due(func.coalesce(_delivery.run_id, 0) % SLOTS == _SLOTS)


_UPDATE = RowMapping(
    DeliveryUpdate,
    renamed={"delivery_id": "updated_id", "tried_at": "newly_tried_at", "error": "last_error", "mute": "muted"},
    composed={"outcome"},
)


class Outbox(Repository):
    """The deliveries that wait; an update is durable when `record` returns."""

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
        if slots is None:
            rows = self._rows(_DUE, parameters)
        else:
            rows = self._rows(_DUE_IN_SLOTS, {**parameters, "slots": list(slots)})
        deliveries, errors = decode_deliveries(rows)
        if errors:
            # They become dead without waiting for the write: until it succeeds, the next read tries again.
            log.error("notifications_undecodable", errors=dict(errors))
            waits = (_delivery.id == bindparam("undecodable_id")) & _delivery.state.in_(WAITING)
            statement = update(tables.delivery).where(waits).values(state=DeliveryState.DEAD.value)
            rows = [
                {"undecodable_id": id_, "last_error": f"the stored notification cannot be decoded: {error}"}
                for id_, error in errors.items()
            ]
            self._writer.submit(lambda transaction: transaction.connection.execute(statement, rows))
        return deliveries

    def delivery_context(self, run_id: int, *, now: float) -> DeliveryContext:
        """Return the state of a run that decides about its deliveries, as one snapshot. Errors: NotFound."""
        event = tables.alert_event.c
        newest = select(tables.alert_event).where(event.run_id == run_id).order_by(event.id.desc()).limit(MAX_EVENTS)
        with self._reader.connect() as connection:
            run = read_run(connection, run_id)
            alerts, acked = _read_alerts(connection, run_id, ended_after=now - LATE_SECONDS)
            tried, waiting = _read_notified(connection, run_id, made_after=now - LATE_SECONDS)
            return DeliveryContext(
                run=run,
                alerts=alerts,
                tried=tried,
                waiting=waiting,
                acked=acked,
                silences=read_silences(connection, project=run.key.project, now=now),
                events=tuple(map(EVENT_MAPPING.from_row, connection.execute(newest))),
            )

    def mark_tried(self, delivery_ids: Collection[int], *, now: float, fences: Fences | None = None) -> None:
        """Record, before they are sent, that deliveries are tried, if the fences still hold. Errors: Fenced."""
        tried = update(tables.delivery).where(_delivery.id.in_(delivery_ids)).values(tried_at=now)
        self._write(lambda connection: connection.execute(tried), fences)

    def record(self, updates: Sequence[DeliveryUpdate], *, fences: Fences | None = None) -> None:
        """Write updates of deliveries in one transaction, if the fences still hold. Errors: Fenced."""
        rows = list(map(_UPDATE.to_row, updates))
        tried_at = func.coalesce(bindparam("newly_tried_at", type_=Double), _delivery.tried_at)
        statement = update(tables.delivery).where(_delivery.id == bindparam("updated_id")).values(tried_at=tried_at)
        self._write(lambda connection: connection.execute(statement, rows), fences)

    def _write(self, statement: Callable[[Connection], object], fences: Fences | None) -> None:
        def write(transaction: Transaction) -> None:
            if fences:
                check_fences(transaction.connection, fences)
            statement(transaction.connection)

        self._writer.submit(write).result()


class Deliveries(Reader):
    """Reads the deliveries of runs."""

    def list(
        self,
        *,
        access: Access,
        state: DeliveryState | None = None,
        project: str | None = None,
        run: str | None = None,
        after: str | None = None,
        limit: int = 50,
    ) -> Page[DeliveryInfo]:
        """Return deliveries, newest first. Errors: InvalidInput for an invalid cursor."""
        found = (
            select(tables.delivery, _run.project, _run.name.label("run")).join(tables.run).where(visible_runs(access))
        )
        wanted = {_delivery.state: state and state.value, _run.project: project, _run.name: run}
        return self._page(
            where_given(found, wanted), _delivery.id, decode=DeliveryInfo.from_fields, after=after, limit=limit
        )
