"""The webhook: posts the alerts of a run that are due together as signed JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from trmon.domain.alerts.notification import Notification
from trmon.notifications.receivers.http_post import HttpPost
from trmon.notifications.receivers.receiver import DeliveryResult
from trmon.notifications.receivers.webhook_message import webhook_message
from trmon.notifications.receivers.webhook_signature import WebhookSigner

TIMESTAMP_HEADER = "X-Trmon-Timestamp"
KEY_HEADER = "X-Trmon-Delivery"


def message_key(notifications: Sequence[Notification]) -> str:
    """Return the idempotency key of a message: a retry of the same deliveries repeats it."""
    if len(notifications) == 1:
        return notifications[0].key
    keys = "\n".join(sorted(notification.key for notification in notifications))
    return f"group:{hashlib.sha256(keys.encode()).hexdigest()}"


class Webhook:
    """Posts one message for all notifications; signed if there is a secret. Errors: ValueError for a bad secret."""

    repeat_seconds = None
    is_grouping = True

    def __init__(self, http_post: HttpPost, *, secret: str | None = None) -> None:
        self._http_post = http_post
        self._signer = None if secret is None else WebhookSigner(secret)

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:
        """Post notifications in one message."""
        body, timestamp = msgspec.json.encode(webhook_message(notifications)), int(now)
        key = message_key(notifications)
        headers = {KEY_HEADER: key, TIMESTAMP_HEADER: str(timestamp)}
        if self._signer is not None:
            headers |= self._signer.headers(body, message_key=key, timestamp=timestamp)
        return self._http_post.post(body, headers=headers)

    def close(self) -> None:
        """Close the connections."""
        self._http_post.close()
