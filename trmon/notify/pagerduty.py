"""PagerDuty: one incident per alert, over Events API v2."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from trmon.domain.alerts.notification import Notification
from trmon.domain.severity import Severity
from trmon.notify.message_text import cause_details
from trmon.notify.receiver import DeliveryResult, HttpPost, HttpReceiver, rfc3339

SEVERITIES = {Severity.PAGE: "critical", Severity.WARN: "warning"}
MAX_SUMMARY_LENGTH = 1024
MAX_KEY_LENGTH = 255


class PagerDuty(HttpReceiver):
    """Triggers an incident when an alert fires, and resolves it when the alert resolves."""

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
    if not notification.is_firing:
        return {"event_action": "resolve", **identity}
    return {
        "event_action": "trigger",
        **identity,
        "client": "trmon",
        "links": [] if notification.url is None else [{"href": notification.url, "text": f"step {notification.step}"}],
        "payload": {
            "summary": notification.summary[:MAX_SUMMARY_LENGTH],
            "severity": SEVERITIES.get(notification.alert.severity, "info"),
            "source": f"{notification.run.project}/{notification.run.run}",
            "class": notification.alert.rule,
            "timestamp": rfc3339(notification.alert.since_at),
            "custom_details": {
                **notification.alert.labels,
                "value": notification.value,
                "threshold": notification.threshold,
                "step": notification.step,
                "owner": notification.run.owner,
                "do": notification.runbook,
                **cause_details(notification),
            },
        },
    }


def incident_key(notification: Notification) -> str:
    """Return the dedup key of an alert, the same for all its episodes; made of names, because ids are not global."""
    labels = ",".join(f"{name}={value}" for name, value in sorted(notification.alert.labels.items()))
    key = f"trmon:{notification.run.project}/{notification.run.run}:{notification.alert.rule}:{labels}"
    return key if len(key) <= MAX_KEY_LENGTH else f"trmon:{hashlib.sha256(key.encode()).hexdigest()}"
