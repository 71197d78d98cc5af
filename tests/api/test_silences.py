"""Silences and acknowledgements over HTTP, with the service restarted in between."""

from __future__ import annotations

import time
from urllib.parse import quote

import httpx
import pytest

from tests.fixtures.alerting import CRASH, crash, deliveries, notifying
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import OwnRun, Serve, bearer, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import send
from tests.fixtures.waiting import eventually
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey

CRASHED = {"matchers": [{"label": "rule", "operator": "=", "value": "crashed"}], "seconds": 600, "note": "known"}
PREVIEWED: list[tuple[list[tuple[str, str, str]], str | None, int]] = [
    ([("rule", "=", "crashed")], None, 2),
    ([("run", "~", "[!o]r?o"), ("project", "=", "math")], None, 1),
    ([("rule", "=", "crashed"), ("run", "!~", "*r*")], None, 0),
    ([("rule", "=", "crashed")], "code", 0),
]
"""Matchers, the silence's project, and how many of the alerts of math/grpo and math/other it covers."""


@pytest.fixture
def paging(serve: Serve, hook: WebhookServer) -> ThreadedService:
    return notifying(serve, hook)


def test_a_silence_mutes_an_alert_across_a_restart_until_it_ends(paging: ThreadedService, hook: WebhookServer) -> None:
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
        assert hook.posted == []
        assert client.get("/api/v1/silences").json()["items"] == [silence | {"alerts": 1}]
        assert client.delete(f"/api/v1/silences/{silence['id']}").status_code == 204
        assert client.get("/api/v1/silences").json()["items"] == []
        [ended] = client.get("/api/v1/silences", params={"ended": True}).json()["items"]
        assert ended["ends_at"] <= time.time()
        eventually(lambda: list(hook.posted))


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


def test_an_owners_alerts_go_to_their_receivers_only(serve: Serve, hook: WebhookServer) -> None:
    service = notifying(serve, hook, slack_url=hook.url, routes={"me": ["slack"]})
    with service.client() as client:
        crash(client)
        send(client, RunKey("math", "nobodys"), CRASH)
        told = eventually(lambda: deliveries(client, state="standing"), lambda found: len(found) == 3)
    assert sorted((delivery["run"], delivery["receiver"]) for delivery in told) == [
        ("grpo", "slack"),
        ("nobodys", "slack"),
        ("nobodys", "webhook"),
    ]


def test_a_silence_mutes_what_its_preview_named(client: httpx.Client) -> None:
    crash(client)
    send(client, RunKey("math", "other"), CRASH)
    eventually(lambda: client.get("/api/v1/alerts").json()["items"], lambda found: len(found) == 2)
    for matchers, project, count in PREVIEWED:
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


def test_many_alerts_are_acknowledged_at_once_and_each_refusal_is_named(run: OwnRun) -> None:
    client, listed = run.client, f"/api/v1/alerts?project={run.key.project}"
    run.send(CRASH)
    send(client, RunKey(run.key.project, "other"), CRASH)
    firing = eventually(lambda: client.get(listed).json()["items"], lambda found: len(found) == 2)
    identities = [alert["identity"] for alert in firing]
    given = {"identities": [*identities, "99/crashed", identities[0]], "author": "ana", "note": "the node is gone"}
    answer = client.post("/api/v1/alerts/ack", json=given).json()
    assert sorted(answer["acknowledged"]) == sorted(identities)
    assert answer["refused"] == [{"identity": "99/crashed", "detail": "no alert '99/crashed'"}]
    acked = client.get(listed).json()["items"]
    assert {(alert["ack"]["author"], alert["ack"]["note"]) for alert in acked} == {("ana", "the node is gone")}
    for count in (0, 501):
        refused = client.post("/api/v1/alerts/ack", json={"identities": ["1/crashed"] * count})
        assert (refused.status_code, refused.json()["field"]) == (400, "identities")


def test_a_projects_token_silences_and_acknowledges_in_its_own_project_only(admin: httpx.Client) -> None:
    alert = crash(admin)
    code, reader, member = (
        bearer(make_token(admin, name, scope, project=project))
        for name, scope, project in (
            ("code", Scope.ADMIN, "code"),
            ("reader", Scope.READ, None),
            ("member", Scope.READ, "math"),
        )
    )
    made = admin.post("/api/v1/silences", json=CRASHED, headers=code).json()
    assert (made["project"], made["author"], made["alerts"]) == ("code", "code", 0)
    given = {"identities": [alert["identity"]]}
    refused = admin.post("/api/v1/alerts/ack", json=given, headers=code).json()
    assert (refused["acknowledged"], len(refused["refused"])) == ([], 1)
    for path, body in (("silences", CRASHED), ("alerts/ack", given)):
        assert admin.post(f"/api/v1/{path}", json=body, headers=reader).status_code == 403
    admin.post("/api/v1/silences", json=CRASHED)
    [theirs] = admin.get("/api/v1/alerts", headers=member).json()["items"]
    [whole] = admin.get("/api/v1/alerts").json()["items"]
    assert whole["ack"] is None
    assert (whole["silenced"]["note"], theirs["silenced"]["note"]) == ("known", ""), "of a silence of all projects"
    assert theirs["silenced"]["ends_at"] == whole["silenced"]["ends_at"]
