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

import msgspec
from msgspec import UNSET, UnsetType
from standardwebhooks import Webhook as StandardWebhook

from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.notification import FiringAlert, Flapping, Notification, NotifiedCause, NotifiedRun
from trmon.domain.finding import JsonNumber, Severity
from trmon.notify.message_text import merged_summary, message_key, run_names
from trmon.notify.receiver import DeliveryResult, HttpPost

MESSAGE_VERSION = 2
SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix of every secret
TRMON_SIGNATURE_HEADER = "X-Trmon-Signature"
TIMESTAMP_HEADER = "X-Trmon-Timestamp"
KEY_HEADER = "X-Trmon-Delivery"


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
