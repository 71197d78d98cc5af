"""The webhook: an alert as a signed POST of JSON."""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from trmon.domain.alerts import Delivery
from trmon.notify.peer import Peer
from trmon.notify.receiver import Result

SIGNATURE = "X-Trmon-Signature"
TIMESTAMP = "X-Trmon-Timestamp"
DEDUP_KEY = "X-Trmon-Delivery"


def sign(secret: str, body: bytes, *, timestamp: int) -> str:
    """Return the hex HMAC-SHA256 of '<timestamp>.<body>', as its receiver recomputes it."""
    return hmac.new(secret.encode(), b"%d.%b" % (timestamp, body), hashlib.sha256).hexdigest()


class Webhook:
    """Posts the body of each delivery as it is."""

    repeat_seconds = None

    def __init__(self, peer: Peer, *, secret: str | None = None) -> None:
        self._peer = peer
        self._secret = secret

    def deliver(self, delivery: Delivery, *, now: float) -> Result:
        """Post one delivery, signed if there is a secret."""
        body, timestamp = msgspec.json.encode(delivery.body), int(now)
        headers = {DEDUP_KEY: delivery.key, TIMESTAMP: str(timestamp)}
        if self._secret is not None:
            headers[SIGNATURE] = f"sha256={sign(self._secret, body, timestamp=timestamp)}"
        return self._peer.post(body, headers=headers)

    def close(self) -> None:
        """Let go of connections."""
        self._peer.close()
