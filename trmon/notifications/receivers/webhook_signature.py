"""Signatures of webhooks: the Standard Webhooks headers, and trmon's own.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from datetime import datetime, timezone

from standardwebhooks import Webhook as StandardWebhook

SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix of every secret
TRMON_SIGNATURE_HEADER = "X-Trmon-Signature"


class WebhookSigner:
    """Signs the bodies of webhooks with a secret, which is plain text or `whsec_` and base64.

    The Standard Webhooks key is the decoded base64, or the UTF-8 bytes of a plain secret. The key of
    `X-Trmon-Signature` is the secret as it is written. Errors: ValueError for a `whsec_` secret that is not base64.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._standard = StandardWebhook(standard_key(secret))

    def headers(self, body: bytes, *, message_key: str, timestamp: int) -> dict[str, str]:
        """Return the signature headers of a body that is sent at a time, in seconds since the epoch."""
        message_id = standard_message_id(message_key)
        sent_at = datetime.fromtimestamp(timestamp, tz=timezone.utc)
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": self._standard.sign(message_id, sent_at, body.decode()),
            TRMON_SIGNATURE_HEADER: f"sha256={trmon_signature(self._secret, body, timestamp=timestamp)}",
        }


def standard_key(secret: str) -> bytes:
    """Return the signing key of a secret. Errors: ValueError."""
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise ValueError(f"a webhook secret that starts with {SECRET_PREFIX} must continue with base64")
    return key


def standard_message_id(message_key: str) -> str:
    """Return the id of a message: a hash of its key, because the specification forbids full stops in ids."""
    return f"msg_{hashlib.sha256(message_key.encode()).hexdigest()[:32]}"


def trmon_signature(secret: str, body: bytes, *, timestamp: int) -> str:
    """Return the hex HMAC-SHA256 of '<timestamp>.<body>'."""
    return hmac.new(secret.encode(), b"%d.%b" % (timestamp, body), hashlib.sha256).hexdigest()
