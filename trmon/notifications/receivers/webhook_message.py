"""The JSON body of a webhook: the run once, and every alert that it reports."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.notification import FiringAlert, Flapping, Notification, NotifiedCause, NotifiedRun
from trmon.domain.model.finding import JsonNumber, Severity
from trmon.notifications.receivers.merged_runs import merged_summary, run_names

MESSAGE_VERSION = 2


class WebhookRun(msgspec.Struct, frozen=True, kw_only=True):
    """The run of an alert."""

    project: str
    run: str
    owner: str | None
    tags: tuple[str, ...]
    mode: str


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
    cause: NotifiedCause | None
    ended_ill: bool
    run: WebhookRun | UnsetType = UNSET


class WebhookMessage(msgspec.Struct, frozen=True, kw_only=True):
    """What a webhook posts; `status` is firing if any of its alerts is.

    A message that merges several runs has a `summary`, and a run for each alert; its own `run` and `firing` are those
    of its first alert.
    """

    version: int
    status: AlertState
    run: WebhookRun
    alerts: list[WebhookAlert]
    firing: tuple[FiringAlert, ...]
    summary: str | UnsetType = UNSET


def webhook_message(notifications: Sequence[Notification]) -> WebhookMessage:
    """Return the message of notifications of one run, or merged ones of several."""
    first, is_firing = notifications[0], any(notification.is_firing for notification in notifications)
    is_merged = len(run_names(notifications)) > 1
    return WebhookMessage(
        version=MESSAGE_VERSION,
        status=AlertState.FIRING if is_firing else AlertState.RESOLVED,
        run=_run(first.run),
        alerts=[_alert(notification, has_run=is_merged) for notification in notifications],
        firing=first.firing,
        summary=merged_summary(notifications) if is_merged else UNSET,
    )


def _alert(notification: Notification, *, has_run: bool) -> WebhookAlert:
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
        cause=notification.cause,
        ended_ill=notification.ended_ill,
        run=_run(notification.run) if has_run else UNSET,
    )


def _run(run: NotifiedRun) -> WebhookRun:
    return WebhookRun(project=run.project, run=run.run, owner=run.owner, tags=run.tags, mode=run.mode)
