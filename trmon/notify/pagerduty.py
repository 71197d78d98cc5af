"""PagerDuty: one incident per alert, over Events API v2."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from trmon.domain.alerts.notification import Notification, NotifiedState
from trmon.domain.severity import Severity
from trmon.notify.message_text import cause_details, message_text, who_and_when
from trmon.notify.receiver import DeliveryResult, HttpPost, HttpReceiver, rfc3339

SEVERITIES = {Severity.PAGE: "critical", Severity.WARN: "warning"}
MAX_SUMMARY_LENGTH = 1024
MAX_KEY_LENGTH = 255


class PagerDuty(HttpReceiver):
    """Triggers an incident when an alert fires, acknowledges it with the alert, and resolves it when that resolves."""

    is_grouping = False
    merges_runs = False

    def __init__(self, http_post: HttpPost, *, routing_key: str) -> None:
        super().__init__(http_post)
        self._routing_key = routing_key

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:  # noqa: ARG002 - the port's signature
        """Post one event: each alert is a separate incident, so that it resolves independently."""
        [notification] = notifications
        event = {"routing_key": self._routing_key, **pagerduty_event(notification)}
        return self._http_post.post(msgspec.json.encode(event))


def pagerduty_event(notification: Notification) -> dict[str, Any]:
    """Return the event of a notification, without its routing key."""
    identity = {"dedup_key": incident_key(notification)}
    if notification.state is NotifiedState.RESOLVED:
        return {"event_action": "resolve", **identity}
    message = message_text([notification])
    [alert] = message.alerts
    is_new = notification.state is NotifiedState.FIRING
    action = "acknowledge" if notification.is_acknowledgement else "trigger" if notification.is_firing else "resolve"
    return {
        "event_action": action,
        **identity,
        "client": "trmon",
        "links": [{"href": link.url, "text": link.text} for link in message.links],
        "payload": {
            # A resolved incident looks healed: the summary says that this one is not.
            "summary": (notification.summary if is_new else f"{alert.status}: {notification.summary}")[
                :MAX_SUMMARY_LENGTH
            ],
            "severity": SEVERITIES.get(notification.alert.severity, "info"),
            "source": f"{notification.run.project}/{notification.run.run}",
            "class": notification.alert.rule,
            "timestamp": rfc3339(notification.alert.since_at),
            "custom_details": {
                **notification.alert.labels,
                "state": notification.state.value,
                "value": notification.value,
                "threshold": notification.threshold,
                "step": notification.step,
                "owner": notification.run.owner,
                "do": notification.runbook,
                **cause_details(notification),
                **who_and_when(notification),
            },
        },
    }


def incident_key(notification: Notification) -> str:
    """Return the dedup key of an alert, the same for all its episodes; made of names, because ids are not global."""
    labels = ",".join(f"{name}={value}" for name, value in sorted(notification.alert.labels.items()))
    key = f"trmon:{notification.run.project}/{notification.run.run}:{notification.alert.rule}:{labels}"
    return key if len(key) <= MAX_KEY_LENGTH else f"trmon:{hashlib.sha256(key.encode()).hexdigest()}"
