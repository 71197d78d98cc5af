"""Alertmanager: sends alerts over API v2, and repeats them while they fire."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from trmon.domain.alerts.alert import TransitionReason
from trmon.domain.alerts.notification import Notification
from trmon.domain.severity import Severity
from trmon.notify.message_text import cause_details, who_and_when
from trmon.notify.receiver import DeliveryResult, HttpPost, HttpReceiver, rfc3339
from trmon_client.core.wire.messages import decodable

PATH = "/api/v2/alerts"
REPEAT_SECONDS = 60.0
EXPIRES_AFTER_REPEATS = 4
"""Alertmanager resolves an alert after so many missed repeats, so that a stopped service leaves none behind."""

SENDS = re.compile(r"^[ -]*\w+_configs:", re.MULTILINE)
"""The line of Alertmanager's configuration that gives one of its receivers something to send to."""


class Config(msgspec.Struct, frozen=True):
    """The configuration in force, as YAML."""

    original: str


@decodable
class Status(msgspec.Struct, frozen=True):
    """The part of Alertmanager's status that is read here."""

    config: Config


class Alertmanager(HttpReceiver):
    """Posts alerts under labels that are constant while they fire; measured values are annotations."""

    merges_runs = False

    def __init__(self, http_post: HttpPost, *, repeat_seconds: float = REPEAT_SECONDS) -> None:
        super().__init__(http_post)
        self.repeat_seconds = repeat_seconds
        self._expiry_seconds = EXPIRES_AFTER_REPEATS * repeat_seconds

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:
        alerts = [alertmanager_alert(one, now=now, expiry_seconds=self._expiry_seconds) for one in notifications]
        alerts += [_milder_alert(one) for one in notifications if one.reason == TransitionReason.WORSENED.value]
        return self._http_post.post(msgspec.json.encode(alerts))

    def problem(self) -> str:
        """Return that no receiver of Alertmanager's own sends anything; empty if one does, or it does not answer."""
        try:
            status = msgspec.json.decode(self._http_post.read("status"), type=Status)
        except msgspec.MsgspecError:
            return ""
        return (
            "" if SENDS.search(status.config.original) else "Alertmanager takes alerts, but none of its receivers sends"
        )


def alertmanager_alert(notification: Notification, *, now: float, expiry_seconds: float) -> dict[str, Any]:
    """Return a notification as an alert of Alertmanager; a number in a label would make each value a new alert."""
    notified = notification.alert
    ends_at = now + expiry_seconds if notification.is_firing else max(notified.at, notified.since_at)
    annotations = {
        "summary": notification.summary,
        "value": notification.value,
        "threshold": notification.threshold,
        "step": notification.step,
        "runbook": notification.runbook,
        "state": notification.state.value,
        **cause_details(notification),
        **who_and_when(notification),
    }
    alert: dict[str, Any] = {
        "labels": _labels(notification),
        "annotations": {name: str(value) for name, value in annotations.items() if value is not None},
        "startsAt": rfc3339(notified.since_at),
        "endsAt": rfc3339(ends_at),
    }
    return alert if notification.url is None else alert | {"generatorURL": notification.url}


def _milder_alert(notification: Notification) -> dict[str, Any]:
    """Return the end of the warning that an incident was before: its severity is a label, so the page is another alert.

    Without it the warning would outlive a page that resolves before the warning expires.
    """
    notified = notification.alert
    return {
        "labels": _labels(notification) | {"severity": Severity.WARN.value},
        "startsAt": rfc3339(notified.since_at),
        "endsAt": rfc3339(max(notified.at, notified.since_at)),
    }


def _labels(notification: Notification) -> dict[str, str]:
    standard = {
        "alertname": notification.alert.rule,
        "service": "trmon",
        "project": notification.run.project,
        "run": notification.run.run,
        "severity": notification.alert.severity.value,
        "owner": notification.run.owner or "",
    }
    return {name: value for name, value in (notification.alert.labels | standard).items() if value}
