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
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey

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
        assert client.get("/api/v1/silences").json()["items"] == [silence | {"alerts": 1}]
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


def test_many_alerts_are_acknowledged_at_once_and_each_refusal_is_named(client: httpx.Client) -> None:
    crash(client)
    send(client, RunKey("math", "other"), CRASH)
    firing = eventually(lambda: client.get("/api/v1/alerts").json()["items"], lambda found: len(found) == 2)
    identities = [alert["identity"] for alert in firing]
    given = {"identities": [*identities, "99/crashed", identities[0]], "author": "ana", "note": "the node is gone"}
    answer = client.post("/api/v1/alerts/ack", json=given)
    assert answer.status_code == 200
    assert sorted(answer.json()["acknowledged"]) == sorted(identities)
    assert answer.json()["refused"] == [{"identity": "99/crashed", "detail": "no alert '99/crashed'"}]
    listed = client.get("/api/v1/alerts").json()["items"]
    assert {(alert["ack"]["author"], alert["ack"]["note"]) for alert in listed} == {("ana", "the node is gone")}


def test_alerts_are_acknowledged_at_once_in_the_callers_project_only(admin: httpx.Client) -> None:
    crash(admin)
    alert = admin.get("/api/v1/alerts").json()["items"][0]
    given = {"identities": [alert["identity"]]}
    stranger = {"Authorization": f"Bearer {make_token(admin, 'code', Scope.ADMIN, project='code')}"}
    refused = admin.post("/api/v1/alerts/ack", json=given, headers=stranger).json()
    assert (refused["acknowledged"], len(refused["refused"])) == ([], 1)
    reader = {"Authorization": f"Bearer {make_token(admin, 'reader', Scope.READ)}"}
    assert admin.post("/api/v1/alerts/ack", json=given, headers=reader).status_code == 403
    assert admin.get("/api/v1/alerts").json()["items"][0]["ack"] is None


@pytest.mark.parametrize("count", [0, 501])
def test_the_number_of_alerts_acknowledged_at_once_is_bounded(client: httpx.Client, count: int) -> None:
    answer = client.post("/api/v1/alerts/ack", json={"identities": ["1/crashed"] * count})
    assert (answer.status_code, answer.json()["field"]) == (400, "identities")


PREVIEWED = [
    pytest.param([("rule", "=", "crashed")], None, 2, id="a rule"),
    pytest.param([("run", "~", "gr?o")], None, 1, id="a pattern"),
    pytest.param([("run", "~", "[!g]*"), ("project", "=", "math")], None, 1, id="a set of characters"),
    pytest.param([("run", "~", "GRPO")], None, 0, id="the case of letters counts"),
    pytest.param([("rule", "=", "crashed"), ("run", "!~", "*r*")], None, 0, id="a negative pattern"),
    pytest.param([("rule", "=", "crashed")], "code", 0, id="another project"),
]


@pytest.mark.parametrize(("matchers", "project", "count"), PREVIEWED)
def test_a_silence_mutes_what_its_preview_named(
    client: httpx.Client, matchers: list[tuple[str, str, str]], project: str | None, count: int
) -> None:
    crash(client)
    send(client, RunKey("math", "other"), CRASH)
    eventually(lambda: client.get("/api/v1/alerts").json()["items"], lambda found: len(found) == 2)
    conditions = [{"label": label, "operator": operator, "value": value} for label, operator, value in matchers]
    given = {"project": project, "matchers": conditions, "seconds": 600, "author": "ana", "note": "moved"}
    preview = client.post("/api/v1/silences/preview", json=given).json()
    assert preview["total"] == count
    assert client.get("/api/v1/silences").json()["items"] == []
    made = client.post("/api/v1/silences", json=given).json()
    assert made["alerts"] == count
    silenced = [alert for alert in client.get("/api/v1/alerts").json()["items"] if alert["silenced"]]
    assert {alert["identity"] for alert in silenced} == {alert["identity"] for alert in preview["items"]}
    assert all(alert["silenced"].items() <= made.items() for alert in silenced)
    client.delete(f"/api/v1/silences/{made['id']}")
    assert [alert["silenced"] for alert in client.get("/api/v1/alerts").json()["items"]] == [None, None]


def test_the_note_of_a_silence_of_all_projects_is_not_shown_to_one_of_them(admin: httpx.Client) -> None:
    crash(admin)
    admin.post("/api/v1/silences", json=CRASHED)
    member = {"Authorization": f"Bearer {make_token(admin, 'math', Scope.READ, project='math')}"}
    [theirs] = admin.get("/api/v1/alerts", headers=member).json()["items"]
    [whole] = admin.get("/api/v1/alerts").json()["items"]
    assert (whole["silenced"]["note"], theirs["silenced"]["note"]) == ("known", "")
    assert theirs["silenced"]["ends_at"] == whole["silenced"]["ends_at"]


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
