"""How alerts, their events and deliveries lie in the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, update

from trmon.domain.alerts.alert import Alert, AlertEvent, AlertState, Delivery, DeliveryState
from trmon.domain.model.severity import Severity
from trmon.store.database.upsert import insert_new, upsert
from trmon.store.schema import tables


def write_alerts(connection: Connection, alerts: Sequence[Alert]) -> None:
    """Write alerts over those of the same episode; what was dropped was never an alert, and leaves."""
    kept = [_alert_row(alert) for alert in alerts if alert.state is not AlertState.DROPPED]
    upsert(connection, tables.alert, key=tables.ALERT_KEY, rows=kept)
    for alert in alerts:
        if alert.state is AlertState.DROPPED:
            row = _alert_row(alert)
            episode = [tables.alert.c[name] == row[name] for name in tables.ALERT_KEY]
            connection.execute(delete(tables.alert).where(*episode))


def forget_acknowledgements(connection: Connection, events: Sequence[AlertEvent]) -> None:
    """Forget who took up an alert of a rule over states that fires again at the same step: that was another episode.

    Before the alerts themselves are written.
    """
    for event in events:
        if event.state is AlertState.FIRING and event.silence_started_at is not None:
            place = {name: getattr(event, "update" if name == "update_index" else name) for name in tables.ALERT_KEY}
            standing = [tables.alert.c[name] == value for name, value in place.items()]
            former = update(tables.alert).where(*standing, tables.alert.c.since_at != event.at)
            connection.execute(former.values(acked_by=None, acked_at=None, ack_note=None))


def write_events(connection: Connection, events: Sequence[AlertEvent]) -> None:
    """Add transitions; one that is known already stays as it is."""
    rows = [
        {
            "run_id": event.run_id,
            "identity": event.identity,
            "attempt_id": event.attempt_id,
            "step": event.step,
            "update_index": event.update,
            "silence_started_at": event.silence_started_at,
            "state": event.state.value,
            "at": event.at,
            "value": event.value,
            "threshold": event.threshold,
            "summary": event.summary,
        }
        for event in events
    ]
    insert_new(connection, tables.alert_event, rows=rows)


def write_deliveries(connection: Connection, deliveries: Sequence[Delivery]) -> None:
    """Put notifications into the outbox; one whose dedup key is known already is not sent again."""
    rows = [
        {
            "receiver": delivery.receiver,
            "dedup_key": delivery.dedup_key,
            "body": delivery.body,
            "state": delivery.state.value,
            "attempts": delivery.attempts,
            "due_at": delivery.due_at,
            "made_at": delivery.made_at,
            "run_id": delivery.run_id,
            "episode": delivery.episode,
            "told_state": delivery.told_state.value,
            "rounds": delivery.rounds,
        }
        for delivery in deliveries
    ]
    insert_new(connection, tables.delivery, rows=rows)


def alert_from_row(row: Any) -> Alert:
    """Return an alert from its row."""
    return Alert(
        identity=row.identity,
        run_id=row.run_id,
        rule=row.rule,
        severity=Severity(row.severity),
        state=AlertState(row.state),
        attempt_id=row.attempt_id,
        step=row.step,
        update=row.update_index,
        since_at=row.since_at,
        updated_at=row.updated_at,
        value=row.value,
        threshold=row.threshold,
        summary=row.summary,
        labels=row.labels,
        runbook=row.runbook,
    )


def event_from_row(row: Any) -> AlertEvent:
    """Return a transition from its row."""
    return AlertEvent(
        identity=row.identity,
        run_id=row.run_id,
        attempt_id=row.attempt_id,
        step=row.step,
        update=row.update_index,
        silence_started_at=row.silence_started_at,
        state=AlertState(row.state),
        at=row.at,
        value=row.value,
        threshold=row.threshold,
        summary=row.summary,
    )


def delivery_from_row(row: Any) -> Delivery:
    """Return a delivery from its row."""
    return Delivery(
        id=row.id,
        receiver=row.receiver,
        dedup_key=row.dedup_key,
        body=row.body,
        attempts=row.attempts,
        state=DeliveryState(row.state),
        due_at=row.due_at,
        made_at=row.made_at,
        run_id=row.run_id,
        episode=row.episode,
        told_state=AlertState(row.told_state),
        rounds=row.rounds,
    )


def _alert_row(alert: Alert) -> dict[str, Any]:
    return {
        "identity": alert.identity,
        "attempt_id": alert.attempt_id,
        "step": alert.step,
        "update_index": alert.update,
        "run_id": alert.run_id,
        "rule": alert.rule,
        "severity": alert.severity.value,
        "state": alert.state.value,
        "since_at": alert.since_at,
        "updated_at": alert.updated_at,
        "value": alert.value,
        "threshold": alert.threshold,
        "summary": alert.summary,
        "labels": alert.labels,
        "runbook": alert.runbook,
    }
