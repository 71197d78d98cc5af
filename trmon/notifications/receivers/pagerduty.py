"""PagerDuty: an alert as an incident of its own, over Events API v2."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from trmon.domain.alerts.alert import Delivery
from trmon.notifications.receivers.http_post import HttpPost
from trmon.notifications.receivers.notice import Notice, notice_of, rfc3339
from trmon.notifications.receivers.receiver import DeliveryResult

SEVERITIES = {"page": "critical", "warn": "warning"}
MAX_SUMMARY_LENGTH = 1024
MAX_KEY_LENGTH = 255


class PagerDuty:
    """Triggers an incident when an alert fires, and resolves it when the alert has."""

    repeat_seconds = None
    is_grouping = False

    def __init__(self, peer: HttpPost, *, routing_key: str) -> None:
        self._peer = peer
        self._routing_key = routing_key

    def deliver(self, deliveries: Sequence[Delivery], *, now: float) -> DeliveryResult:  # noqa: ARG002 - the port's signature
        """Post one event: an incident is of one alert, so that each resolves by itself."""
        [delivery] = deliveries
        event = {"routing_key": self._routing_key, **pagerduty_event(notice_of(delivery))}
        return self._peer.post(msgspec.json.encode(event))

    def close(self) -> None:
        """Let go of connections."""
        self._peer.close()


def pagerduty_event(notice: Notice) -> dict[str, Any]:
    """Return the event of a notice, without its routing key."""
    identity = {"dedup_key": incident_key(notice)}
    if not notice.is_firing:
        return {"event_action": "resolve", **identity}
    return {
        "event_action": "trigger",
        **identity,
        "client": "trmon",
        "links": [] if notice.url is None else [{"href": notice.url, "text": f"step {notice.step}"}],
        "payload": {
            "summary": notice.summary[:MAX_SUMMARY_LENGTH],
            "severity": SEVERITIES.get(notice.alert.severity, "info"),
            "source": f"{notice.run.project}/{notice.run.run}",
            "class": notice.alert.rule,
            "timestamp": rfc3339(notice.alert.since_at),
            "custom_details": {
                **notice.alert.labels,
                "value": notice.value,
                "threshold": notice.threshold,
                "step": notice.step,
                "owner": notice.run.owner,
                "do": notice.runbook,
            },
        },
    }


def incident_key(notice: Notice) -> str:
    """Return what every episode of one alert is known by there, by names: ids are another service's too."""
    labels = ",".join(f"{name}={value}" for name, value in sorted(notice.alert.labels.items()))
    key = f"trmon:{notice.run.project}/{notice.run.run}:{notice.alert.rule}:{labels}"
    return key if len(key) <= MAX_KEY_LENGTH else f"trmon:{hashlib.sha256(key.encode()).hexdigest()}"
