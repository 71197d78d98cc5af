"""Slack: posts the alerts of a run that are due together as one message to an incoming webhook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from trmon.domain.alerts.notification import Notification
from trmon.domain.severity import Severity
from trmon.notify.message_text import AlertParagraph, message_text
from trmon.notify.receiver import DeliveryResult, HttpReceiver

MARKS = {Severity.PAGE: ":rotating_light:", Severity.WARN: ":warning:"}
RESOLVED_MARK = ":white_check_mark:"


class Slack(HttpReceiver):
    """Posts one message for all notifications."""

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:  # noqa: ARG002 - the port's signature
        return self._http_post.post(msgspec.json.encode({"text": slack_text(notifications)}))


def slack_text(notifications: Sequence[Notification]) -> str:
    """Return notifications in Slack's markup: summaries with their details, other firing alerts and a link."""
    message = message_text(notifications)
    lines = [line for alert in message.alerts for line in _lines(alert)]
    if message.note is not None:
        lines.append(_escape(message.note))
    if message.link is not None:
        lines.append(f"<{_escape(message.link.url)}|{_escape(message.link.text)}>")
    return "\n".join(lines)


def _lines(alert: AlertParagraph) -> Iterator[str]:
    is_good_news = not (alert.is_firing or alert.ended)
    mark = RESOLVED_MARK if is_good_news else MARKS.get(Severity.WARN if alert.ended else alert.severity, "")
    yield f"{mark} *{alert.status}* {_escape(alert.summary)}"
    yield from map(_escape, alert.details)


def _escape(text: str) -> str:
    """Return text without markup, because a run may have any name, for example <!channel>."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
