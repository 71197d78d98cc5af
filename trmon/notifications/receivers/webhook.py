"""The webhook: the alerts of a run that are due together, as a signed POST of JSON."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

import msgspec

from trmon.domain.alerts.alert import Delivery
from trmon.domain.alerts.deliveries import group_message
from trmon.notifications.receivers.http_post import HttpPost
from trmon.notifications.receivers.receiver import DeliveryResult

SIGNATURE = "X-Trmon-Signature"
TIMESTAMP = "X-Trmon-Timestamp"
DEDUP_KEY = "X-Trmon-Delivery"


def sign(secret: str, body: bytes, *, timestamp: int) -> str:
    """Return the hex HMAC-SHA256 of '<timestamp>.<body>', as its receiver recomputes it."""
    return hmac.new(secret.encode(), b"%d.%b" % (timestamp, body), hashlib.sha256).hexdigest()


def message_key(deliveries: Sequence[Delivery]) -> str:
    """Return what a message is known by: a retry of the same deliveries repeats it."""
    if len(deliveries) == 1:
        return deliveries[0].key
    keys = "\n".join(sorted(delivery.key for delivery in deliveries))
    return f"group:{hashlib.sha256(keys.encode()).hexdigest()}"


class Webhook:
    """Posts what `domain.deliveries` makes a message of."""

    repeat_seconds = None
    is_grouping = True

    def __init__(self, peer: HttpPost, *, secret: str | None = None) -> None:
        self._peer = peer
        self._secret = secret

    def deliver(self, deliveries: Sequence[Delivery], *, now: float) -> DeliveryResult:
        """Post deliveries in one message, signed if there is a secret."""
        body, timestamp = msgspec.json.encode(group_message(deliveries)), int(now)
        headers = {DEDUP_KEY: message_key(deliveries), TIMESTAMP: str(timestamp)}
        if self._secret is not None:
            headers[SIGNATURE] = f"sha256={sign(self._secret, body, timestamp=timestamp)}"
        return self._peer.post(body, headers=headers)

    def close(self) -> None:
        """Let go of connections."""
        self._peer.close()
