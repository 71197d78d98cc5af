"""The webhook: posts the alerts of a run that are due together as signed JSON.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import msgspec
from msgspec import structs
from standardwebhooks import Webhook as StandardWebhook

from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.notification import Notification, NotifiedRun, NotifiedState
from trmon.domain.errors import NotReady
from trmon.notify.message_text import merged_summary, message_key, run_names
from trmon.notify.receiver import DeliveryResult, HttpPost, HttpReceiver

MESSAGE_VERSION = 2
SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix of every secret
TRMON_SIGNATURE_HEADER = "X-Trmon-Signature"
TIMESTAMP_HEADER = "X-Trmon-Timestamp"
TOLD = ("cause", "ended", "ack", "began_at")
KEY_HEADER = "X-Trmon-Delivery"


def webhook_message(notifications: Sequence[Notification]) -> dict[str, Any]:
    """Return the message of notifications of one run, or merged ones of several; the page on alerts names its fields.

    `status` is firing if any of the alerts is, `state` that of the most urgent one. A merged message has a `summary`,
    and a run for each alert; its own `run` and `firing` are those of its first alert.
    """
    first, is_firing = notifications[0], any(notification.is_firing for notification in notifications)
    is_merged = len(run_names(notifications)) > 1
    message = {
        "version": MESSAGE_VERSION,
        "status": AlertState.FIRING if is_firing else AlertState.RESOLVED,
        "state": min((notification.state for notification in notifications), key=[*NotifiedState].index),
        "run": _run(first.run),
        "alerts": [_alert(notification, has_run=is_merged) for notification in notifications],
        "firing": first.firing,
    }
    return message | {"summary": merged_summary(notifications)} if is_merged else message


def _alert(notification: Notification, *, has_run: bool) -> dict[str, Any]:
    """Return a notification with the fields of its alert among its own, and without the run's other alerts."""
    fields = structs.asdict(notification)
    alert, run, _, _, *told = (fields.pop(name) for name in ("alert", "run", "firing", "picture", *TOLD))
    status, key = fields.pop("status"), fields.pop("key")
    fields = {"key": key, "status": status, "state": notification.state, **fields, **structs.asdict(alert)}
    fields |= {"attempt_id": run.attempt_id, **dict(zip(TOLD, told, strict=True))}
    return fields | {"run": _run(run)} if has_run else fields


def _run(run: NotifiedRun) -> dict[str, Any]:
    return {name: value for name, value in structs.asdict(run).items() if name != "attempt_id"}


class WebhookSigner:
    """Signs the bodies of webhooks with a secret, which is plain text or `whsec_` and base64.

    The Standard Webhooks key is the decoded base64, or the UTF-8 bytes of a plain secret. The key of
    `X-Trmon-Signature` is the secret as it is written. Errors: NotReady for a `whsec_` secret that is not base64.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self._standard = StandardWebhook(standard_key(secret))

    def headers(self, body: bytes, *, message_key: str, timestamp: int) -> dict[str, str]:
        """Return the signature headers of a body that is sent at a time, in seconds since the epoch."""
        message_id = standard_message_id(message_key)
        signed = hmac.new(self._secret.encode(), b"%d.%b" % (timestamp, body), hashlib.sha256)
        sent_at = datetime.fromtimestamp(timestamp, tz=timezone.utc)
        return {
            "webhook-id": message_id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": self._standard.sign(message_id, sent_at, body.decode()),
            TRMON_SIGNATURE_HEADER: f"sha256={signed.hexdigest()}",
        }


def standard_key(secret: str) -> bytes:
    """Return the signing key of a secret. Errors: NotReady."""
    if not secret.startswith(SECRET_PREFIX):
        return secret.encode()
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except binascii.Error:
        key = b""
    if not key:
        raise NotReady(
            f"TRMON_WEBHOOK_SECRET: a webhook secret that starts with {SECRET_PREFIX} must continue with base64"
        )
    return key


def standard_message_id(message_key: str) -> str:
    """Return the id of a message: a hash of its key, because the specification forbids full stops in ids."""
    return f"msg_{hashlib.sha256(message_key.encode()).hexdigest()[:32]}"


class Webhook(HttpReceiver):
    """Posts one message for all notifications; signed if there is a secret. Errors: NotReady for a bad secret."""

    def __init__(self, http_post: HttpPost, *, secret: str | None = None) -> None:
        super().__init__(http_post)
        self._signer = None if secret is None else WebhookSigner(secret)

    def deliver(self, notifications: Sequence[Notification], *, now: float) -> DeliveryResult:
        body, timestamp = msgspec.json.encode(webhook_message(notifications)), int(now)
        key = message_key(notifications)
        headers = {KEY_HEADER: key, TIMESTAMP_HEADER: str(timestamp)}
        if self._signer is not None:
            headers |= self._signer.headers(body, message_key=key, timestamp=timestamp)
        return self._http_post.post(body, headers=headers)
