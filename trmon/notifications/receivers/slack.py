"""Slack: posts the alerts of a run that are due together as one message to an incoming webhook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from trmon.domain.alerts.notification import FiringAlert, Notification
from trmon.domain.model.severity import Severity
from trmon.notifications.receivers.http_post import HttpPost
from trmon.notifications.receivers.receiver import DeliveryResult

MARKS = {Severity.PAGE: ":rotating_light:", Severity.WARN: ":warning:"}
RESOLVED_MARK = ":white_check_mark:"


class Slack:
    """Posts one message for all notifications."""

    repeat_seconds = None
    is_grouping = True

    def __init__(self, http_post: HttpPost) -> None:
        self._http_post = http_post

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:  # noqa: ARG002 - the port's signature
        """Post one message."""
        return self._http_post.post(msgspec.json.encode({"text": slack_text(notifications)}))

    def close(self) -> None:
        """Close the connections."""
        self._http_post.close()


def slack_text(notifications: Sequence[Notification]) -> str:
    """Return notifications of one run in Slack's markup: summary, runbook, other firing alerts and a link."""
    lines = [line for notification in notifications for line in _lines(notification)]
    others = [f"{alert.rule} (muted)" if alert.muted else alert.rule for alert in _others(notifications)]
    if others:
        lines.append(f"Also firing: {_escape(', '.join(others))}")
    newest = max(notifications, key=lambda notification: notification.step)
    if newest.url is not None:
        lines.append(f"<{_escape(newest.url)}|{_escape(newest.run.run)} at step {newest.step}>")
    return "\n".join(lines)


def _lines(notification: Notification) -> Iterator[str]:
    mark = MARKS.get(notification.alert.severity, "") if notification.is_firing else RESOLVED_MARK
    status = f"still {notification.status.value}" if notification.told_before else notification.status.value
    yield f"{mark} *{status}* {_escape(notification.summary)}"
    if not notification.is_firing:
        yield _escape(f"Over: {notification.reason}.")
    if notification.flapping is not None:
        changes, steps = notification.flapping.transitions, notification.flapping.within_steps
        yield f"It flaps: {changes} changes within {steps} steps. No more of it until it settles."
    if notification.is_firing and notification.runbook:
        yield _escape(notification.runbook)


def _others(notifications: Sequence[Notification]) -> list[FiringAlert]:
    reported = {notification.alert.rule for notification in notifications}
    return [alert for alert in notifications[-1].firing if alert.rule not in reported]


def _escape(text: str) -> str:
    """Return text without markup, because a run may have any name, for example <!channel>."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
