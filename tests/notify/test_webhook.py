"""The webhook, against a local server: its message, headers and signature, its results, and what it refuses."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from datetime import datetime, timezone
from typing import Any

import msgspec
import pytest
import standardwebhooks
from msgspec import structs
from standardwebhooks.webhooks import WebhookVerificationError

from tests.fixtures.receiver import WebhookServer
from tests.notify.posting import notification
from trmon.domain.errors import NotReady
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, HttpPost
from trmon.notify.webhook import Webhook, WebhookSigner, standard_key, standard_message_id, webhook_message

NOTIFICATION = notification()
LOCAL = frozenset({"127.0.0.1"})


def deliver(
    url: str, *, allow_hosts: frozenset[str] = LOCAL, secret: str | None = None, now: float = 1000.9, **options: Any
) -> DeliveryResult:
    webhook = Webhook(HttpPost(url, allow_hosts=allow_hosts, **options), secret=secret)
    try:
        return webhook.deliver([NOTIFICATION], now=now)
    finally:
        webhook.close()


def test_a_notification_is_posted_as_json_with_its_key(hook: WebhookServer) -> None:
    assert deliver(hook.url) == DeliveryResult(DeliveryOutcome.DELIVERED)
    [posted] = hook.posted
    assert posted.path == "/hook"
    assert posted.headers["Host"] == f"127.0.0.1:{hook.port}"
    assert posted.headers["Content-Type"] == "application/json"
    assert posted.headers["X-Trmon-Delivery"] == NOTIFICATION.key
    assert not [name for name in posted.headers if "signature" in name.lower()], "there is no secret"
    assert posted.body == msgspec.json.encode(webhook_message([NOTIFICATION]))


def test_grouped_alerts_are_one_message_whose_key_a_retry_repeats(hook: WebhookServer) -> None:
    other = notification(identity="1/stalled", rule="stalled")
    webhook = Webhook(HttpPost(hook.url, allow_hosts=LOCAL))
    for group in (
        [NOTIFICATION, other],
        [other, NOTIFICATION],
        [NOTIFICATION, structs.replace(other, key=f"{other.key}:1")],
    ):
        assert webhook.deliver(group, now=0.0) == DeliveryResult(DeliveryOutcome.DELIVERED)
    webhook.close()
    first, retried, another = (posted.headers["X-Trmon-Delivery"] for posted in hook.posted)
    assert first == retried != another
    alerts = json.loads(hook.posted[0].body)["alerts"]
    assert [(alert["rule"], alert["key"]) for alert in alerts] == [
        ("mask_rate", NOTIFICATION.key),
        ("stalled", other.key),
    ]


def test_a_host_whose_first_address_refuses_is_reached_at_its_next_one(hook: WebhookServer) -> None:
    url = f"http://alerts.local:{hook.port}/hook"
    asked: list[str] = []

    def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["::1", "127.0.0.2", "127.0.0.1"]

    result = deliver(url, allow_hosts=frozenset({"alerts.local"}), resolve=resolve)
    assert result == DeliveryResult(DeliveryOutcome.DELIVERED)
    [posted] = hook.posted
    assert posted.headers["Host"] == f"alerts.local:{hook.port}"
    assert asked == ["alerts.local"]


@pytest.mark.parametrize("secret", ["swordfish", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
def test_the_trmon_signature_covers_the_time_and_the_body(hook: WebhookServer, secret: str) -> None:
    deliver(hook.url, secret=secret)
    [posted] = hook.posted
    assert posted.headers["X-Trmon-Timestamp"] == "1000"
    expected = hmac.new(secret.encode(), b"1000." + posted.body, hashlib.sha256).hexdigest()
    assert posted.headers["X-Trmon-Signature"] == f"sha256={expected}"


@pytest.mark.parametrize(
    ("secret", "receiver_key"),
    [
        pytest.param("swordfish", b"swordfish", id="a plain secret"),
        pytest.param(
            "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", id="a base64 secret"
        ),
    ],
)
def test_the_verifier_of_standard_webhooks_accepts_the_request_and_no_other_body(
    hook: WebhookServer, secret: str, receiver_key: str | bytes
) -> None:
    deliver(hook.url, secret=secret, now=time.time())
    [posted] = hook.posted
    verifier = standardwebhooks.Webhook(receiver_key)
    assert verifier.verify(posted.body, dict(posted.headers)) == json.loads(posted.body)
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        verifier.verify(posted.body + b" ", dict(posted.headers))


def test_a_retry_has_the_same_standard_id_and_a_new_timestamp(hook: WebhookServer) -> None:
    for now in (1000.0, 1060.0):
        deliver(hook.url, secret="swordfish", now=now)
    first, retried = hook.posted
    assert first.headers["webhook-id"] == retried.headers["webhook-id"]
    assert [posted.headers["webhook-timestamp"] for posted in hook.posted] == ["1000", "1060"]
    assert first.headers["webhook-signature"] != retried.headers["webhook-signature"]


FAILURES: list[tuple[dict[str, Any], dict[str, Any], DeliveryOutcome, str]] = [
    ({"statuses": [408]}, {}, DeliveryOutcome.RETRY, "answered 408"),
    ({"statuses": [429]}, {}, DeliveryOutcome.RETRY, "answered 429"),
    ({"statuses": [503]}, {}, DeliveryOutcome.RETRY, "answered 503"),
    ({"statuses": [503]}, {"resolve": lambda *_: ["127.0.0.1"] * 2}, DeliveryOutcome.RETRY, "answered 503"),
    ({"statuses": [401]}, {}, DeliveryOutcome.REFUSED, "answered 401"),
    ({"statuses": [307], "headers": {"Location": "/hook"}}, {}, DeliveryOutcome.REFUSED, "answered 307"),
    ({"hold": threading.Event()}, {"timeout_seconds": 0.2}, DeliveryOutcome.RETRY, "ReadTimeout"),
]
"""What a server does, the options of the webhook, and what becomes of the delivery."""


@pytest.mark.parametrize(("server", "options", "outcome", "reason"), FAILURES)
def test_each_failure_has_an_outcome_and_a_reason_and_is_one_request(
    server: dict[str, Any], options: dict[str, Any], outcome: DeliveryOutcome, reason: str
) -> None:
    with WebhookServer(**server) as hook:
        assert deliver(hook.url, **options) == DeliveryResult(outcome, reason)
    assert len(hook.posted) == 1


def test_what_cannot_be_reached_is_retried_and_what_may_not_is_refused(hook: WebhookServer) -> None:
    nowhere = deliver(hook.url, resolve=lambda *_: ["::1", "127.0.0.2"])
    forbidden = deliver(hook.url, allow_hosts=frozenset())
    assert nowhere == DeliveryResult(DeliveryOutcome.RETRY, "ConnectError: Connection refused")
    assert (forbidden.outcome, "https" in forbidden.reason, hook.posted) == (DeliveryOutcome.REFUSED, True, [])


def test_a_reason_never_contains_the_url() -> None:
    secret = "https://10.0.0.7/services/T000/B000/secret"
    result = deliver(secret)
    assert result.outcome is DeliveryOutcome.REFUSED
    assert "secret" not in result.reason
    assert "T000" not in result.reason


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"test": 2432232314}'


def test_the_key_and_the_signature_are_those_of_the_published_vector() -> None:
    sent_at = datetime.fromtimestamp(1614265330, tz=timezone.utc)
    signature = standardwebhooks.Webhook(standard_key(SECRET)).sign(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", sent_at, BODY.decode()
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_id_has_no_full_stop_and_depends_on_the_key() -> None:
    message_id = standard_message_id("hook:1/high:3:7.2:firing")
    assert "." not in message_id
    assert (
        message_id == standard_message_id("hook:1/high:3:7.2:firing") != standard_message_id("hook:1/high:3:7.3:firing")
    )


@pytest.mark.parametrize("secret", ["whsec_", "whsec_not base64", "whsec_abc"])
def test_a_malformed_base64_secret_is_refused(secret: str) -> None:
    with pytest.raises(NotReady, match=r"TRMON_WEBHOOK_SECRET: .* must continue with base64"):
        WebhookSigner(secret)
