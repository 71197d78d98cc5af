"""The webhook, against a real server: signed, retried where that may help, and never led astray."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.fixtures.receiver import WebhookServer
from tests.notifications.receivers.notices import told
from trmon.domain.alerts.deliveries import group_message
from trmon.notifications.receivers.http_post import HttpPost
from trmon.notifications.receivers.receiver import DeliveryOutcome, DeliveryResult
from trmon.notifications.receivers.webhook import Webhook

DELIVERY = replace(told(), id=7)
LOCAL = frozenset({"127.0.0.1"})


@pytest.fixture
def server() -> Iterator[WebhookServer]:
    with WebhookServer() as server:
        yield server


def deliver(
    url: str, *, allow_hosts: frozenset[str] = LOCAL, secret: str | None = None, **options: object
) -> DeliveryResult:
    webhook = Webhook(HttpPost(url, allow_hosts=allow_hosts, **options), secret=secret)  # type: ignore[arg-type]
    try:
        return webhook.deliver([DELIVERY], now=1000.9)
    finally:
        webhook.close()


def test_a_delivery_is_posted_as_json_with_its_key(server: WebhookServer) -> None:
    assert deliver(server.url) == DeliveryResult(DeliveryOutcome.DELIVERED)
    [posted] = server.posted
    assert posted.path == "/hook"
    assert posted.headers["Host"] == f"127.0.0.1:{server.port}"
    assert posted.headers["Content-Type"] == "application/json"
    assert posted.headers["X-Trmon-Delivery"] == DELIVERY.dedup_key
    assert "X-Trmon-Signature" not in posted.headers
    assert json.loads(posted.body) == group_message([DELIVERY])


def test_alerts_that_are_due_together_are_one_message(server: WebhookServer) -> None:
    other = told(identity="1/stalled", rule="stalled")
    webhook = Webhook(HttpPost(server.url, allow_hosts=LOCAL))
    for together in ([DELIVERY, other], [other, DELIVERY], [DELIVERY, replace(other, rounds=1)]):
        assert webhook.deliver(together, now=0.0) == DeliveryResult(DeliveryOutcome.DELIVERED)
    webhook.close()
    first, retried, another = (posted.headers["X-Trmon-Delivery"] for posted in server.posted)
    assert first == retried != another
    alerts = json.loads(server.posted[0].body)["alerts"]
    assert [(alert["rule"], alert["key"]) for alert in alerts] == [
        ("mask_rate", DELIVERY.dedup_key),
        ("stalled", other.dedup_key),
    ]


def test_another_round_has_another_key_and_a_retry_the_same(server: WebhookServer) -> None:
    webhook = Webhook(HttpPost(server.url, allow_hosts=LOCAL))
    for delivery in (DELIVERY, replace(DELIVERY, attempts=1), replace(DELIVERY, rounds=2)):
        webhook.deliver([delivery], now=0.0)
    webhook.close()
    keys = [posted.headers["X-Trmon-Delivery"] for posted in server.posted]
    assert keys == [DELIVERY.dedup_key, DELIVERY.dedup_key, f"{DELIVERY.dedup_key}:2"]


def test_a_signature_covers_the_time_and_the_body(server: WebhookServer) -> None:
    deliver(server.url, secret="swordfish")
    [posted] = server.posted
    assert posted.headers["X-Trmon-Timestamp"] == "1000"
    expected = hmac.new(b"swordfish", b"1000." + posted.body, hashlib.sha256).hexdigest()
    assert posted.headers["X-Trmon-Signature"] == f"sha256={expected}"


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
def test_an_answer_says_whether_to_try_again(server: WebhookServer, status: int, outcome: DeliveryOutcome) -> None:
    server.statuses = [status]
    assert deliver(server.url).outcome is outcome


def test_a_redirect_is_not_followed(server: WebhookServer) -> None:
    server.statuses, server.headers = [307], {"Location": server.url}
    assert deliver(server.url) == DeliveryResult(DeliveryOutcome.REFUSED, "answered 307")
    assert len(server.posted) == 1


def test_nobody_there_is_tried_again(server: WebhookServer) -> None:
    server.__exit__()
    assert deliver(server.url) == DeliveryResult(DeliveryOutcome.RETRY, "ConnectError")
    server.__enter__()


def test_a_receiver_that_hangs_is_left(server: WebhookServer) -> None:
    server.hold = threading.Event()
    assert deliver(server.url, timeout_seconds=0.2) == DeliveryResult(DeliveryOutcome.RETRY, "ReadTimeout")


def test_loopback_must_be_allowed(server: WebhookServer) -> None:
    found = deliver(server.url, allow_hosts=frozenset())
    assert found.outcome is DeliveryOutcome.REFUSED
    assert "https" in found.reason
    assert server.posted == []


def test_the_address_that_was_checked_is_the_one_connected_to(server: WebhookServer) -> None:
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["192.0.2.1"]

    url = f"http://hooks.example:{server.port}/hook"
    assert deliver(url, allow_hosts=frozenset({"hooks.example"}), resolve=resolve).outcome is DeliveryOutcome.DELIVERED
    assert asked == ["hooks.example"]
    assert server.posted[0].headers["Host"] == f"hooks.example:{server.port}"


def test_a_reason_never_holds_the_url() -> None:
    secret = "https://10.0.0.7/services/T000/B000/secret"
    found = deliver(secret)
    assert found.outcome is DeliveryOutcome.REFUSED
    assert "secret" not in found.reason
    assert "T000" not in found.reason
