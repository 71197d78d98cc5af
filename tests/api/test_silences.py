"""Silences and acknowledgements over HTTP, with the service restarted in between."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.fixtures.alerting import CRASH, crash, deliveries
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import Serve, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import send
from tests.fixtures.waiting import eventually
from trmon.domain.model.access import Scope
from trmon.domain.model.identity import RunKey

CRASHED = {"matchers": [{"label": "rule", "operator": "=", "value": "crashed"}], "seconds": 600, "note": "known"}


@pytest.fixture
def receiver() -> Iterator[WebhookServer]:
    with WebhookServer() as server:
        yield server


@pytest.fixture
def paging(serve: Serve, receiver: WebhookServer) -> ThreadedService:
    return serve(webhook_url=receiver.url, webhook_allow_hosts="127.0.0.1")


def test_a_silence_mutes_an_alert_across_a_restart_until_it_ends(
    paging: ThreadedService, receiver: WebhookServer
) -> None:
    with paging.client() as client:
        made = client.post("/api/v1/silences", json=CRASHED)
        assert made.status_code == 201
        silence = made.json()
        assert (silence["author"], silence["note"], silence["project"]) == ("local", "known", None)
        crash(client)
        [held] = eventually(lambda: deliveries(client, state="held"))
        assert held["muted"] == "a silence covers the alert"
    paging.restart()
    with paging.client() as client:
        assert receiver.posted == []
        assert client.get("/api/v1/silences").json()["items"] == [silence]
        assert client.delete(f"/api/v1/silences/{silence['id']}").status_code == 204
        assert client.get("/api/v1/silences").json()["items"] == []
        [ended] = client.get("/api/v1/silences", params={"ended": True}).json()["items"]
        assert ended["ends_at"] <= time.time()
        eventually(lambda: list(receiver.posted))


@pytest.mark.parametrize(
    ("changed", "status", "field"),
    [
        pytest.param({"matchers": []}, 400, "matchers", id="no matcher"),
        pytest.param({"matchers": [{"label": "rule", "operator": "!=", "value": "x"}]}, 400, "matchers", id="no name"),
        pytest.param(
            {"matchers": [{"label": "rule", "operator": "=~", "value": "x"}]},
            400,
            "matchers.0.operator",
            id="an operator that there is not",
        ),
        pytest.param({"seconds": 0}, 400, "seconds", id="no time"),
        pytest.param({"starts_at": "NaN"}, 400, "starts_at", id="a start that is no number"),
        pytest.param({"starts_at": "Infinity"}, 400, "starts_at", id="a start that never comes"),
        pytest.param({"project": "no/name"}, 400, "project", id="a name that is none"),
    ],
)
def test_an_invalid_silence_is_refused(client: httpx.Client, changed: dict[str, Any], status: int, field: str) -> None:
    answer = client.post("/api/v1/silences", json=CRASHED | changed)
    assert (answer.status_code, answer.json()["field"]) == (status, field)


def test_a_projects_token_silences_its_own_project(admin: httpx.Client) -> None:
    secret = make_token(admin, "code", Scope.ADMIN, project="code")
    bearer = {"Authorization": f"Bearer {secret}"}
    made = admin.post("/api/v1/silences", json=CRASHED, headers=bearer).json()
    assert (made["project"], made["author"]) == ("code", "code")
    reader = {"Authorization": f"Bearer {make_token(admin, 'reader', Scope.READ)}"}
    assert admin.post("/api/v1/silences", json=CRASHED, headers=reader).status_code == 403


def test_an_acknowledgement_has_an_author_and_a_note_and_survives_a_restart(service: ThreadedService) -> None:
    with service.client() as client:
        alert = crash(client)
        assert alert["ack"] is None
        path = f"/api/v1/alerts/{quote(str(alert['identity']), safe='')}/ack"
        acked = client.post(path, json={"author": "ana", "note": "looking"}).json()
        assert (acked["ack"]["author"], acked["ack"]["note"]) == ("ana", "looking")
    service.restart()
    with service.client() as client:
        [listed] = client.get("/api/v1/alerts").json()["items"]
        assert listed["ack"] == acked["ack"]


def test_an_unknown_alert_cannot_be_acknowledged(client: httpx.Client) -> None:
    assert client.post("/api/v1/alerts/1/crashed/ack", json={}).status_code == 404


def test_an_owners_alerts_go_to_their_receivers_only(serve: Serve, receiver: WebhookServer) -> None:
    service = serve(
        webhook_url=receiver.url, slack_url=receiver.url, webhook_allow_hosts="127.0.0.1", routes={"me": ["slack"]}
    )
    with service.client() as client:
        crash(client)
        send(client, RunKey("math", "nobodys"), CRASH)
        told = eventually(lambda: deliveries(client, state="standing"), lambda found: len(found) == 3)
    assert sorted((delivery["run"], delivery["receiver"]) for delivery in told) == [
        ("grpo", "slack"),
        ("nobodys", "slack"),
        ("nobodys", "webhook"),
    ]
