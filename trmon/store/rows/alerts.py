"""Alerts, their transitions and their deliveries as rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, delete, update

from trmon.domain.alerts.alert import Acknowledgement, Alert, AlertEvent, AlertState
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.notification import Notification
from trmon.domain.errors import Damaged
from trmon.store.database.upsert import insert_new, upsert
from trmon.store.rows.mapping import Codec, RowMapping
from trmon.store.schema import tables

_UPDATE = {"update": "update_index"}
ALERT_MAPPING = RowMapping(Alert, renamed=_UPDATE)
EVENT_MAPPING = RowMapping(AlertEvent, renamed=_UPDATE)
_NOTIFICATION = Codec(
    encode=lambda notification: notification, decode=lambda document: msgspec.convert(document, Notification)
)
_DELIVERY = RowMapping(
    Delivery, renamed={"notification": "body"}, codecs={"notification": _NOTIFICATION}, generated={"id"}
)


def read_acknowledgement(row: Any) -> Acknowledgement | None:
    """Return who has the alert of a row; None if nobody has."""
    if row.acked_at is None:
        return None
    return Acknowledgement(author=row.acked_by, note=row.ack_note, at=row.acked_at)


def write_alerts(connection: Connection, alerts: Sequence[Alert]) -> None:
    """Insert alerts or update the rows of the same episode; a dropped alert never fired, so its row is deleted."""
    stored = [ALERT_MAPPING.to_row(alert) for alert in alerts if alert.state is not AlertState.DROPPED]
    upsert(connection, tables.alert, key=tables.ALERT_KEY, rows=stored)
    for alert in alerts:
        if alert.state is AlertState.DROPPED:
            row = ALERT_MAPPING.to_row(alert)
            is_episode = [tables.alert.c[name] == row[name] for name in tables.ALERT_KEY]
            connection.execute(delete(tables.alert).where(*is_episode))


def clear_acknowledgements(connection: Connection, events: Sequence[AlertEvent]) -> None:
    """Clear the acknowledgement of an alert of a clock rule that fires again at the same step: it is a new episode.

    Call it before the alerts themselves are written.
    """
    for event in events:
        if event.state is AlertState.FIRING and event.silence_started_at is not None:
            row = EVENT_MAPPING.to_row(event)
            same_place = [tables.alert.c[name] == row[name] for name in tables.ALERT_KEY]
            earlier = update(tables.alert).where(*same_place, tables.alert.c.since_at != event.at)
            connection.execute(earlier.values(acked_by=None, acked_at=None, ack_note=None))


def write_alert_events(connection: Connection, events: Sequence[AlertEvent]) -> None:
    """Insert transitions; one that is already stored does not change."""
    insert_new(connection, tables.alert_event, rows=[EVENT_MAPPING.to_row(event) for event in events])


def write_deliveries(connection: Connection, deliveries: Sequence[Delivery]) -> None:
    """Insert notifications into the outbox; one whose dedup key is already stored is not sent again."""
    insert_new(connection, tables.delivery, rows=[_DELIVERY.to_row(delivery) for delivery in deliveries])


def decode_deliveries(rows: Iterable[Any]) -> tuple[list[Delivery], dict[int, str]]:
    """Return the deliveries of rows, and the error of each delivery whose notification cannot be decoded, by id."""
    deliveries: list[Delivery] = []
    errors: dict[int, str] = {}
    for row in rows:
        try:
            deliveries.append(_DELIVERY.from_row(row))
        except Damaged as error:
            errors[row.id] = str(error)
    return deliveries, errors
