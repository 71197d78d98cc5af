"""The JSON body of a webhook: the run once, and every alert that it reports."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.notification import FiringAlert, Flapping, Notification
from trmon.domain.model.json_number import JsonNumber
from trmon.domain.model.severity import Severity

MESSAGE_VERSION = 2


class WebhookAlert(msgspec.Struct, frozen=True, kw_only=True):
    """One alert of a message; the fields are those of the page on alerts."""

    key: str
    status: AlertState
    reason: str
    value: JsonNumber
    threshold: JsonNumber
    summary: str
    step: int
    update: int | None
    runbook: str
    url: str | None
    flapping: Flapping | None
    told_before: int
    identity: str
    rule: str
    severity: Severity
    labels: dict[str, str]
    since_at: float
    at: float
    since_step: int
    attempt_id: int


class WebhookRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run of a message."""

    project: str
    run: str
    owner: str | None
    tags: tuple[str, ...]
    mode: str


class WebhookMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What a webhook posts; `status` is firing if any of its alerts is."""

    version: int
    status: AlertState
    run: WebhookRun
    alerts: list[WebhookAlert]
    firing: tuple[FiringAlert, ...]


def webhook_message(notifications: Sequence[Notification]) -> WebhookMessage:
    """Return the message of notifications of one run."""
    first, is_firing = notifications[0], any(notification.is_firing for notification in notifications)
    run = first.run
    return WebhookMessage(
        version=MESSAGE_VERSION,
        status=AlertState.FIRING if is_firing else AlertState.RESOLVED,
        run=WebhookRun(project=run.project, run=run.run, owner=run.owner, tags=run.tags, mode=run.mode),
        alerts=[_alert(notification) for notification in notifications],
        firing=first.firing,
    )


def _alert(notification: Notification) -> WebhookAlert:
    alert = notification.alert
    return WebhookAlert(
        key=notification.key,
        status=notification.status,
        reason=notification.reason,
        value=notification.value,
        threshold=notification.threshold,
        summary=notification.summary,
        step=notification.step,
        update=notification.update,
        runbook=notification.runbook,
        url=notification.url,
        flapping=notification.flapping,
        told_before=notification.told_before,
        identity=alert.identity,
        rule=alert.rule,
        severity=alert.severity,
        labels=alert.labels,
        since_at=alert.since_at,
        at=alert.at,
        since_step=alert.since_step,
        attempt_id=notification.run.attempt_id,
    )
