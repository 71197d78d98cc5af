"""The webhook, against a local server: its message, headers and signature, its results, and what it refuses."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timezone

import msgspec
import pytest
import standardwebhooks
from msgspec import structs
from standardwebhooks.webhooks import WebhookVerificationError

from tests.fixtures.receiver import WebhookServer
from tests.notify.posting import firing_alert, notification
from trmon.domain.alerts.alert import AlertState
from trmon.domain.alerts.notification import Flapping
from trmon.domain.identity import RunKey
from trmon.notify.receiver import DeliveryOutcome, DeliveryResult, HttpPost
from trmon.notify.webhook import Webhook, WebhookSigner, standard_key, standard_message_id, webhook_message

NOTIFICATION = notification()
LOCAL = frozenset({"127.0.0.1"})


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    with WebhookServer() as server:
        yield server


def deliver(
    url: str, *, allow_hosts: frozenset[str] = LOCAL, secret: str | None = None, now: float = 1000.9, **options: object
) -> DeliveryResult:
    webhook = Webhook(HttpPost(url, allow_hosts=allow_hosts, **options), secret=secret)  # type: ignore[arg-type]
    try:
        return webhook.deliver([NOTIFICATION], now=now)
    finally:
        webhook.close()


def test_a_notification_is_posted_as_json_with_its_key(server: WebhookServer) -> None:
    assert deliver(server.url) == DeliveryResult(DeliveryOutcome.DELIVERED)
    [posted] = server.posted
    assert posted.path == "/hook"
    assert posted.headers["Host"] == f"127.0.0.1:{server.port}"
    assert posted.headers["Content-Type"] == "application/json"
    assert posted.headers["X-Trmon-Delivery"] == NOTIFICATION.key
    assert posted.body == msgspec.json.encode(webhook_message([NOTIFICATION]))


def test_grouped_alerts_are_one_message_whose_key_a_retry_repeats(server: WebhookServer) -> None:
    other = notification(identity="1/stalled", rule="stalled")
    webhook = Webhook(HttpPost(server.url, allow_hosts=LOCAL))
    for group in (
        [NOTIFICATION, other],
        [other, NOTIFICATION],
        [NOTIFICATION, structs.replace(other, key=f"{other.key}:1")],
    ):
        assert webhook.deliver(group, now=0.0) == DeliveryResult(DeliveryOutcome.DELIVERED)
    webhook.close()
    first, retried, another = (posted.headers["X-Trmon-Delivery"] for posted in server.posted)
    assert first == retried != another
    alerts = json.loads(server.posted[0].body)["alerts"]
    assert [(alert["rule"], alert["key"]) for alert in alerts] == [
        ("mask_rate", NOTIFICATION.key),
        ("stalled", other.key),
    ]


def test_a_host_whose_first_address_refuses_is_reached_at_its_next_one(server: WebhookServer) -> None:
    url = f"http://alerts.local:{server.port}/hook"
    asked: list[str] = []

    def resolve(host: str, _port: int) -> list[str]:
        asked.append(host)
        return ["::1", "127.0.0.2", "127.0.0.1"]

    result = deliver(url, allow_hosts=frozenset({"alerts.local"}), resolve=resolve)
    assert result == DeliveryResult(DeliveryOutcome.DELIVERED)
    [posted] = server.posted
    assert posted.headers["Host"] == f"alerts.local:{server.port}"
    assert asked == ["alerts.local"]


def test_an_answer_of_the_first_address_counts_and_no_other_is_asked(server: WebhookServer) -> None:
    server.statuses = [503]
    url = f"http://alerts.local:{server.port}/hook"
    result = deliver(url, allow_hosts=frozenset({"alerts.local"}), resolve=lambda *_: ["127.0.0.1", "127.0.0.1"])
    assert result == DeliveryResult(DeliveryOutcome.RETRY, "answered 503")
    assert len(server.posted) == 1


def test_a_host_that_refuses_at_every_address_may_be_tried_later(server: WebhookServer) -> None:
    url = f"http://alerts.local:{server.port}/hook"
    result = deliver(url, allow_hosts=frozenset({"alerts.local"}), resolve=lambda *_: ["::1", "127.0.0.2"])
    assert result == DeliveryResult(DeliveryOutcome.RETRY, "ConnectError")
    assert server.posted == []


def test_without_a_secret_there_is_no_signature(server: WebhookServer) -> None:
    deliver(server.url)
    [posted] = server.posted
    assert not {name.lower() for name in posted.headers} & {"webhook-id", "webhook-timestamp", "webhook-signature"}
    assert "X-Trmon-Signature" not in posted.headers


@pytest.mark.parametrize("secret", ["swordfish", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])
def test_the_trmon_signature_covers_the_time_and_the_body(server: WebhookServer, secret: str) -> None:
    deliver(server.url, secret=secret)
    [posted] = server.posted
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
    server: WebhookServer, secret: str, receiver_key: str | bytes
) -> None:
    deliver(server.url, secret=secret, now=time.time())
    [posted] = server.posted
    verifier = standardwebhooks.Webhook(receiver_key)
    assert verifier.verify(posted.body, dict(posted.headers)) == json.loads(posted.body)
    with pytest.raises(WebhookVerificationError, match="No matching signature"):
        verifier.verify(posted.body + b" ", dict(posted.headers))


def test_a_retry_has_the_same_standard_id_and_a_new_timestamp(server: WebhookServer) -> None:
    for now in (1000.0, 1060.0):
        deliver(server.url, secret="swordfish", now=now)
    first, retried = server.posted
    assert first.headers["webhook-id"] == retried.headers["webhook-id"]
    assert [posted.headers["webhook-timestamp"] for posted in server.posted] == ["1000", "1060"]
    assert first.headers["webhook-signature"] != retried.headers["webhook-signature"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, DeliveryOutcome.DELIVERED),
        (204, DeliveryOutcome.DELIVERED),
        (408, DeliveryOutcome.RETRY),
        (429, DeliveryOutcome.RETRY),
        (500, DeliveryOutcome.RETRY),
        (503, DeliveryOutcome.RETRY),
        (400, DeliveryOutcome.REFUSED),
        (401, DeliveryOutcome.REFUSED),
        (404, DeliveryOutcome.REFUSED),
    ],
)
def test_the_status_decides_whether_to_retry(server: WebhookServer, status: int, outcome: DeliveryOutcome) -> None:
    server.statuses = [status]
    assert deliver(server.url).outcome is outcome


def test_a_redirect_is_not_followed(server: WebhookServer) -> None:
    server.statuses, server.headers = [307], {"Location": server.url}
    assert deliver(server.url) == DeliveryResult(DeliveryOutcome.REFUSED, "answered 307")
    assert len(server.posted) == 1


def test_a_refused_connection_is_retried(server: WebhookServer) -> None:
    server.__exit__()
    assert deliver(server.url) == DeliveryResult(DeliveryOutcome.RETRY, "ConnectError")
    server.__enter__()


def test_a_receiver_that_hangs_times_out(server: WebhookServer) -> None:
    server.hold = threading.Event()
    assert deliver(server.url, timeout_seconds=0.2) == DeliveryResult(DeliveryOutcome.RETRY, "ReadTimeout")


def test_loopback_must_be_allowed(server: WebhookServer) -> None:
    result = deliver(server.url, allow_hosts=frozenset())
    assert result.outcome is DeliveryOutcome.REFUSED
    assert "https" in result.reason
    assert server.posted == []


def test_it_connects_to_the_address_that_was_checked(server: WebhookServer) -> None:
    resolved: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        resolved.append(host)
        return ["127.0.0.1"] if len(resolved) == 1 else ["192.0.2.1"]

    url = f"http://hooks.example:{server.port}/hook"
    assert deliver(url, allow_hosts=frozenset({"hooks.example"}), resolve=resolve).outcome is DeliveryOutcome.DELIVERED
    assert resolved == ["hooks.example"]
    assert server.posted[0].headers["Host"] == f"hooks.example:{server.port}"


def test_a_reason_never_contains_the_url() -> None:
    secret = "https://10.0.0.7/services/T000/B000/secret"
    result = deliver(secret)
    assert result.outcome is DeliveryOutcome.REFUSED
    assert "secret" not in result.reason
    assert "T000" not in result.reason


ONE = (
    b'{"version":2,"status":"firing","run":{"project":"math","run":"grpo","owner":"ana","tags":[],"mode":"observe"},'
    b'"alerts":[{"key":"hook:1/mask_rate:3:7:firing","status":"firing",'
    b'"reason":"the condition has held for long enough","value":0.75,"threshold":0.5,'
    b'"summary":"math/grpo: <!channel> & more","step":7,"update":null,"runbook":"Find the drift first.",'
    b'"url":"https://trmon.example/runs/math/grpo?step=7","flapping":{"transitions":6,"within_steps":100},'
    b'"told_before":2,"identity":"1/mask_rate","rule":"mask_rate","severity":"page","labels":{"team":"rl"},'
    b'"since_at":1800000000.0,"at":1800000060.0,"since_step":7,"attempt_id":3,"cause":null,"ended_ill":false}],'
    b'"firing":[{"rule":"stalled","severity":"warn","since_step":1,"summary":"","acknowledged":false,"muted":null}]}'
)


def test_a_message_has_these_bytes() -> None:
    told = structs.replace(
        notification(),
        firing=(firing_alert("stalled"),),
        flapping=Flapping(transitions=6, within_steps=100),
        told_before=2,
    )
    assert msgspec.json.encode(webhook_message([told])) == ONE


def test_a_message_has_every_alert_and_the_run_once() -> None:
    first = structs.replace(notification(), firing=(firing_alert("mask_rate"),))
    second = notification(identity="1/low", rule="low", state=AlertState.RESOLVED)
    message = webhook_message([first, second])
    assert (message.version, message.status, message.firing) == (2, AlertState.FIRING, first.firing)
    alerts = [(alert.key, alert.rule, alert.status, alert.attempt_id) for alert in message.alerts]
    assert alerts == [
        ("hook:1/mask_rate:3:7:firing", "mask_rate", AlertState.FIRING, 3),
        ("hook:1/low:3:7:resolved", "low", AlertState.RESOLVED, 3),
    ]
    assert webhook_message([second]).status is AlertState.RESOLVED


def test_a_merged_message_has_a_summary_and_the_run_of_each_alert() -> None:
    keys = [RunKey("math", f"r{i}") for i in range(3)]
    message = webhook_message([notification(run=key, rule="stalled") for key in keys])
    assert message.summary == "3 runs stalled within 1 s"
    assert message.run.run == "r0"
    assert [alert.run and alert.run.run for alert in message.alerts] == ["r0", "r1", "r2"]


SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
BODY = b'{"test": 2432232314}'


def test_the_key_and_the_signature_are_those_of_the_published_vector() -> None:
    sent_at = datetime.fromtimestamp(1614265330, tz=timezone.utc)
    signature = standardwebhooks.Webhook(standard_key(SECRET)).sign(
        "msg_p5jXN8AQM9LWM0D4loKWxJek", sent_at, BODY.decode()
    )
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_a_request_has_the_standard_headers_and_trmons_own() -> None:
    headers = WebhookSigner(SECRET).headers(BODY, message_key="hook:1/high:3:7.2:firing", timestamp=1614265330)
    assert list(headers) == ["webhook-id", "webhook-timestamp", "webhook-signature", "X-Trmon-Signature"]
    assert headers["webhook-timestamp"] == "1614265330"
    assert headers["webhook-signature"].startswith("v1,")


def test_the_id_has_no_full_stop_and_depends_on_the_key() -> None:
    message_id = standard_message_id("hook:1/high:3:7.2:firing")
    assert "." not in message_id
    assert (
        message_id == standard_message_id("hook:1/high:3:7.2:firing") != standard_message_id("hook:1/high:3:7.3:firing")
    )


@pytest.mark.parametrize("secret", ["whsec_", "whsec_not base64", "whsec_abc"])
def test_a_malformed_base64_secret_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="must continue with base64"):
        WebhookSigner(secret)
