"""Read the state of a run that decides whether a due delivery is sent."""

from __future__ import annotations

import math

from sqlalchemy import Connection, or_, select

from trmon.domain.alerts.alert import Alert, AlertState
from trmon.domain.alerts.delivery import DeliveryContext, DeliveryState
from trmon.domain.alerts.muting import LATE_SECONDS
from trmon.store.repositories.silences import read_silences
from trmon.store.rows.alert_rows import alert_from_row, event_from_row
from trmon.store.rows.run_rows import read_run
from trmon.store.schema import tables

MAX_EVENTS = 500

Subject = tuple[str, str]
"""A receiver and an episode."""


def read_delivery_context(connection: Connection, run_id: int, *, now: float) -> DeliveryContext:
    """Return the state of a run now. Errors: NotFound."""
    run = read_run(connection, tables.run.c.id == run_id, name=str(run_id))
    alerts, acked = _read_alerts(connection, run_id, ended_after=now - LATE_SECONDS)
    tried, waiting = _read_notified(connection, run_id, made_after=now - LATE_SECONDS)
    events = select(tables.alert_event).where(tables.alert_event.c.run_id == run_id)
    newest = events.order_by(tables.alert_event.c.id.desc()).limit(MAX_EVENTS)
    return DeliveryContext(
        run=run,
        alerts=alerts,
        tried=tried,
        waiting=waiting,
        acked=acked,
        silences=read_silences(connection, project=run.key.project, now=now),
        events=tuple(event_from_row(row) for row in connection.execute(newest)),
    )


def _read_alerts(
    connection: Connection, run_id: int, *, ended_after: float
) -> tuple[tuple[Alert, ...], frozenset[str]]:
    """Return the alerts that fire or ended recently, and the acknowledged episodes."""
    table = tables.alert.c
    fires = table.state == AlertState.FIRING.value
    ended = (table.state == AlertState.RESOLVED.value) & (table.updated_at > ended_after)
    found = select(tables.alert).where(table.run_id == run_id, or_(fires, ended)).order_by(table.id)
    rows = connection.execute(found).all()
    acked = (alert_from_row(row).episode for row in rows if row.acked_at is not None)
    return tuple(alert_from_row(row) for row in rows), frozenset(acked)


def _read_notified(
    connection: Connection, run_id: int, *, made_after: float
) -> tuple[dict[Subject, float], frozenset[Subject]]:
    """Return when the firing notification of each pair was tried, and the pairs for which one is due."""
    table = tables.delivery.c
    is_due = (table.state == DeliveryState.DUE.value) & (table.made_at >= made_after)
    columns = (table.receiver, table.episode, table.tried_at, is_due.label("is_due"))
    of_firing = (table.run_id == run_id, table.told_state == AlertState.FIRING.value)
    rows = connection.execute(select(*columns).where(*of_firing, or_(table.tried_at.is_not(None), is_due))).all()
    tried: dict[Subject, float] = {}
    for row in rows:
        if row.tried_at is not None:
            subject = (row.receiver, row.episode)
            tried[subject] = min(tried.get(subject, math.inf), row.tried_at)
    return tried, frozenset((row.receiver, row.episode) for row in rows if row.is_due)
