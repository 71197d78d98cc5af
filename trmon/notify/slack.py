"""Slack: posts the alerts of a run that are due together as one message to an incoming webhook.

Buttons of blocks send an event to an app, and Slack warns where there is none; link buttons of attachments only open
their link. Source: https://docs.slack.dev/legacy/legacy-messaging/legacy-message-buttons
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from trmon.domain.alerts.notification import Notification, NotifiedState
from trmon.domain.severity import Severity
from trmon.notify.message_text import AlertParagraph, Link, MessageText, message_text
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, HttpReceiver

MARKS = {Severity.PAGE: ":rotating_light:", Severity.WARN: ":warning:"}
STATE_MARKS = {
    NotifiedState.ENDED_OPEN: ":warning:",
    NotifiedState.ACKNOWLEDGED: ":raised_hand:",
    NotifiedState.RESOLVED: ":white_check_mark:",
}
MAX_SECTION_LENGTH = 3000
MAX_SECTIONS = 20
"""Slack refuses a message of more than 50 blocks, and a section that is longer."""


class Slack(HttpReceiver):
    """Posts one message for all notifications."""

    shows_pictures = True

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:  # noqa: ARG002 - the port's signature
        """Post the message; without its picture where Slack refuses it, as it does if it cannot fetch the picture."""
        message = message_text(notifications)
        result = self._http_post.post(msgspec.json.encode(slack_message(message)))
        if result.outcome is DeliveryOutcome.REFUSED and message.picture is not None:
            return self._http_post.post(msgspec.json.encode(slack_message(replace(message, picture=None))))
        return result


def slack_message(message: MessageText) -> dict[str, Any]:
    """Return a message as blocks, buttons that are links, and the text that notifications on a phone show."""
    sections = [_section("\n".join(_lines(alert))) for alert in message.alerts[:MAX_SECTIONS]]
    if len(message.alerts) > MAX_SECTIONS:
        sections.append(_section(f"... and {len(message.alerts) - MAX_SECTIONS} more"))
    if message.note is not None:
        sections.append({"type": "context", "elements": [_markup(_escape(message.note))]})
    if message.picture is not None and message.picture.url is not None:
        sections.append({"type": "image", "image_url": message.picture.url, "alt_text": message.picture.words})
    body: dict[str, Any] = {"text": slack_text(message), "blocks": sections}
    if message.link is not None:
        links = (Link(text="Open", url=message.link.url), *message.actions)
        buttons = [{"type": "button", "text": link.text, "url": link.url} for link in links]
        buttons[0]["style"] = "primary"
        body["attachments"] = [{"fallback": message.link.url, "actions": buttons}]
    return body


def _section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": _markup(text)}


def _markup(text: str) -> dict[str, Any]:
    return {
        "type": "mrkdwn",
        "text": text if len(text) <= MAX_SECTION_LENGTH else f"{text[: MAX_SECTION_LENGTH - 3]}...",
    }


def slack_text(message: MessageText) -> str:
    """Return a message in Slack's markup: summaries with their details, other firing alerts and a link."""
    lines = [line for alert in message.alerts for line in _lines(alert)]
    if message.note is not None:
        lines.append(_escape(message.note))
    if message.link is not None:
        lines.append(f"<{_escape(message.link.url)}|{_escape(message.link.text)}>")
    return "\n".join(lines)


def _lines(alert: AlertParagraph) -> Iterator[str]:
    mark = STATE_MARKS.get(alert.state) or MARKS.get(alert.severity, "")
    yield f"{mark} *{alert.status}* {_escape(alert.summary)}"
    yield from map(_escape, alert.details)


def _escape(text: str) -> str:
    """Return text without markup, because a run may have any name, for example <!channel>."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
