"""An alert from the trainer to the receiver: raised, delivered once, and listed if that fails."""

from __future__ import annotations

import hashlib
import hmac
import json

import pytest

from tests.fixtures.alerting import crash, deliveries
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import Serve
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from tests.fixtures.waiting import eventually
from trmon.domain.identity import RunKey


@pytest.fixture
def paging(serve: Serve, hook: WebhookServer) -> ThreadedService:
    return serve(
        webhook_url=hook.url,
        webhook_secret="swordfish",
        webhook_allow_hosts="127.0.0.1",
        delivery_backoff_seconds=0.05,
    )


def test_an_alert_reaches_its_receiver_signed_and_once_also_over_a_restart(
    paging: ThreadedService, hook: WebhookServer
) -> None:
    with paging.client() as client:
        alert = crash(client)
        severity = alert["severity"]
        active = (
            f'trmon_alert_active{{project="math",run="grpo",rule="crashed",severity="{severity}",kind="operation"}} 1.0'
        )
        delivered = 'trmon_delivery_total{outcome="delivered"} 1.0'
        eventually(lambda: client.get("/metrics").text, lambda text: active in text and delivered in text)
    paging.restart()
    with paging.client() as client:
        train(client, RunKey("math", "other"))
        assert len(client.get("/api/v1/alerts").json()["items"]) == 1, "a run that finishes raises none"
    [posted] = hook.posted
    [told] = json.loads(posted.body)["alerts"]
    assert (told["status"], told["summary"], told["identity"]) == ("firing", alert["summary"], alert["identity"])
    signed = posted.headers["X-Trmon-Timestamp"].encode() + b"." + posted.body
    expected = hmac.new(b"swordfish", signed, hashlib.sha256).hexdigest()
    assert posted.headers["X-Trmon-Signature"] == f"sha256={expected}"


def test_a_delivery_that_fails_is_retried(paging: ThreadedService, hook: WebhookServer) -> None:
    hook.statuses = [503, 500, 200]
    with paging.client() as client:
        crash(client)
        delivered = 'trmon_delivery_total{outcome="delivered"} 1.0'
        text = eventually(lambda: client.get("/metrics").text, lambda text: delivered in text)
    assert 'trmon_delivery_total{outcome="retried"} 2.0' in text
    assert len({posted.headers["X-Trmon-Delivery"] for posted in hook.posted}) == 1


def test_dead_deliveries_are_listed_with_the_reason_but_without_the_address(serve: Serve, hook: WebhookServer) -> None:
    hook.statuses = [404]
    service = serve(slack_url=hook.url, webhook_allow_hosts="127.0.0.1")
    with service.client() as client:
        alert = crash(client)
        [dead] = eventually(lambda: deliveries(client, state="dead", project="math", run="grpo"))
        for others in ({"state": "delivered"}, {"project": "math", "run": "other"}, {"project": "code"}):
            assert deliveries(client, **others) == []
        assert hook.url not in client.get("/api/v1/deliveries").text
    assert (dead["project"], dead["run"], dead["receiver"]) == ("math", "grpo", "slack")
    assert (dead["told_state"], dead["attempts"], dead["last_error"]) == ("firing", 1, "answered 404")
    assert dead["body"]["alert"]["identity"] == alert["identity"]
    assert len(hook.posted) == 1


def test_the_receivers_are_listed_and_their_absence_is_a_problem(paging: ThreadedService, serve: Serve) -> None:
    with paging.client() as client:
        assert client.get("/api/v1/deliveries/receivers").json() == {"names": ["webhook"], "problem": None}
    silent = {"names": [], "problem": "no receiver of alerts is configured"}
    with serve().client() as client:
        eventually(lambda: client.get("/api/v1/deliveries/receivers").json(), lambda said: said == silent)
