"""Notifications to render, receivers that post to a local server or have scripted results, and due deliveries."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from msgspec import structs

from tests.domain.alerts.alert_builders import ALERT as HIGH
from tests.domain.alerts.alert_builders import notification_of
from tests.domain.memory_log import MemoryLog
from tests.fixtures.receiver import WebhookServer
from trmon.domain.alerts.alert import INCIDENT_RULE, AlertState, TransitionReason
from trmon.domain.alerts.delivery import Delivery
from trmon.domain.alerts.notification import FiringAlert, Notification, NotifiedCause
from trmon.domain.identity import RunKey
from trmon.domain.incidents.incident import ENDED_ILL
from trmon.domain.severity import Severity
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, HttpPost, Receiver
from trmon.store import Store
from trmon.store.rows.runs import write_deliveries

ALERT = replace(
    HIGH,
    identity="1/mask_rate",
    rule="mask_rate",
    since_at=1_800_000_000.0,
    updated_at=1_800_000_060.0,
    value=0.75,
    threshold=0.5,
    summary="math/grpo: <!channel> & more",
    runbook="Find the drift first.",
)
DELIVERED = DeliveryResult(DeliveryOutcome.DELIVERED)


class ScriptedReceiver(Receiver):
    """A receiver with scripted results, of which it repeats the last; it may block until an event is set."""

    def __init__(
        self, *results: DeliveryResult, hold: threading.Event | None = None, repeat_seconds: float | None = None
    ) -> None:
        self.results = list(results)
        self.repeat_seconds = repeat_seconds
        self.calls = 0
        self.keys: list[str] = []
        self.hold = hold
        self.closed = False

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:
        self.calls += 1
        self.keys += [notification.key for notification in notifications]
        if self.hold is not None:
            self.hold.wait()
        return self.results.pop(0) if len(self.results) > 1 else self.results[0]

    def close(self) -> None:
        self.closed = True


def put(store: Store, *keys: str, receiver: str = "webhook") -> None:
    """Put deliveries without a run into the outbox."""
    deliveries = [
        Delivery(id=0, receiver=receiver, dedup_key=key, notification=notification_of(), due_at=time.time())
        for key in keys
    ]
    store.writer.submit(lambda transaction: write_deliveries(transaction.connection, deliveries)).result()


def notification(
    *, run: RunKey | None = None, public_url: str | None = "https://trmon.example", **changed: Any
) -> Notification:
    """Return a notification of ana's run, under the key of its first delivery; fields of Alert by name."""
    alert, stored = replace(ALERT, **changed), MemoryLog().stored_run
    named = replace(stored, key=run or stored.key, owner="ana")
    key = f"hook:{alert.identity}:{alert.attempt_id}:{alert.step}:{alert.state.value}"
    return structs.replace(notification_of(alert, run=named, public_url=public_url), key=key)


def ended_ill() -> Notification:
    """Return the notification that a run's incident stood until the run finished."""
    over = notification(rule=INCIDENT_RULE, state=AlertState.RESOLVED, summary="reward collapse since step 7")
    cause = NotifiedCause(
        rule="reward_collapse",
        title="reward collapse",
        last_good_step=6,
        remedy="In the next run, start from the checkpoint of step 6.",
        options={},
        runbook_url=None,
    )
    return structs.replace(over, reason=TransitionReason.FINISHED.value, cause=cause, ended=ENDED_ILL)


def firing_alert(rule: str, *, muted: str | None = None, in_incident: bool = False) -> FiringAlert:
    """Return an alert that fires beside the one of a notification."""
    return FiringAlert(
        rule=rule,
        title=rule,
        severity=Severity.WARN,
        since_step=1,
        summary="",
        acknowledged=False,
        muted=muted,
        in_incident=in_incident,
    )


def posted(
    make: Callable[[HttpPost], Receiver], *notifications: Notification, now: float = 0.0
) -> tuple[DeliveryResult, Any]:
    """Deliver to a local server; return the result and the JSON that it received."""
    with WebhookServer() as server:
        receiver = make(HttpPost(server.url, allow_hosts=frozenset({"127.0.0.1"})))
        result = receiver.deliver(notifications, now=now)
        receiver.close()
        [request] = server.posted
    assert request.headers["Content-Type"] == "application/json"
    return result, json.loads(request.body)
