"""The webhook: posts the alerts of a run that are due together as signed JSON."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from trmon.domain.alerts.notification import Notification
from trmon.notifications.receivers.http_post import HttpPost
from trmon.notifications.receivers.message_key import message_key
from trmon.notifications.receivers.receiver import DeliveryResult
from trmon.notifications.receivers.webhook_message import webhook_message
from trmon.notifications.receivers.webhook_signature import WebhookSigner

TIMESTAMP_HEADER = "X-Trmon-Timestamp"
KEY_HEADER = "X-Trmon-Delivery"


class Webhook:
    """Posts one message for all notifications; signed if there is a secret. Errors: ValueError for a bad secret."""

    repeat_seconds = None
    is_grouping = True
    merges_runs = True

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
