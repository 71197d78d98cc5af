"""An alert from the trainer to the receiver: raised, listed, streamed, delivered once."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator

import httpx
import pytest

from tests.fixtures.alerting import crash
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import Serve
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from tests.fixtures.waiting import eventually
from trmon.domain.identity import RunKey


@pytest.fixture
def receiver() -> Iterator[WebhookServer]:
    with WebhookServer() as server:
        yield server


@pytest.fixture
def paging(serve: Serve, receiver: WebhookServer) -> ThreadedService:
    return serve(
        webhook_url=receiver.url,
        webhook_secret="swordfish",
        webhook_allow_hosts="127.0.0.1",
        delivery_backoff_seconds=0.05,
    )


def test_a_crash_is_an_alert(client: httpx.Client) -> None:
    alert = crash(client)
    assert (alert["rule"], alert["state"]) == ("crashed", "firing")
    assert (alert["project"], alert["run"]) == ("math", "grpo")
    assert "math/grpo" in str(alert["summary"])
    events = client.get("/api/v1/alerts/events", params={"identity": alert["identity"]}).json()
    assert events["items"][0]["state"] == "firing"
    eventually(lambda: client.get("/api/v1/runs/math/grpo").json()["firing"], lambda firing: firing == ["crashed"])


def test_a_finished_run_raises_no_alert(client: httpx.Client) -> None:
    train(client)
    assert client.get("/api/v1/alerts").json()["items"] == []


def test_an_alert_reaches_its_receiver_signed_and_once(paging: ThreadedService, receiver: WebhookServer) -> None:
    with paging.client() as client:
        alert = crash(client)
        severity = alert["severity"]
        active = (
            f'trmon_alert_active{{project="math",run="grpo",rule="crashed",severity="{severity}",kind="operation"}} 1.0'
        )
        eventually(lambda: client.get("/metrics").text, lambda text: active in text)
    posted = eventually(lambda: list(receiver.posted))[0]
    [told] = json.loads(posted.body)["alerts"]
    assert (told["status"], told["summary"], told["identity"]) == ("firing", alert["summary"], alert["identity"])
    signed = posted.headers["X-Trmon-Timestamp"].encode() + b"." + posted.body
    expected = hmac.new(b"swordfish", signed, hashlib.sha256).hexdigest()
    assert posted.headers["X-Trmon-Signature"] == f"sha256={expected}"


def test_a_restart_sends_no_notification_twice(paging: ThreadedService, receiver: WebhookServer) -> None:
    with paging.client() as client:
        crash(client)
        delivered = 'trmon_delivery_total{outcome="delivered"} 1.0'
        eventually(lambda: client.get("/metrics").text, lambda text: delivered in text)
    paging.restart()
    with paging.client() as client:
        train(client, RunKey("math", "other"))
        assert len(client.get("/api/v1/alerts").json()["items"]) == 1
    assert len(receiver.posted) == 1


def test_a_delivery_that_fails_is_retried(paging: ThreadedService, receiver: WebhookServer) -> None:
    receiver.statuses = [503, 500, 200]
    with paging.client() as client:
        crash(client)
        delivered = 'trmon_delivery_total{outcome="delivered"} 1.0'
        text = eventually(lambda: client.get("/metrics").text, lambda text: delivered in text)
    assert 'trmon_delivery_total{outcome="retried"} 2.0' in text
    assert len({posted.headers["X-Trmon-Delivery"] for posted in receiver.posted}) == 1


def test_the_rules_are_listed_with_their_thresholds(client: httpx.Client) -> None:
    rules = {rule["name"]: rule for rule in client.get("/api/v1/rules").json()}
    assert {"corrupt_logprobs", "engine_mismatch", "variance_blowup", "mask_rate", "stalled", "crashed"} <= rules.keys()
    assert rules["mask_rate"]["when"] == {"signal": "mask_rate", "above": 0.5, "clear": 0.4}
    assert rules["stalled"]["when"] == {"state": "stalled"}
    assert all(rule["summary"] and rule["runbook"] for rule in rules.values())
