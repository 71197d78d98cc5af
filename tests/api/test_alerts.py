"""Alerts, silences, acknowledgements and limits over HTTP, with the service restarted in between."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.fixtures.alerting import CRASH, crash, deliveries, notifying
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import OwnRun, RecordedRuns, Serve, bearer, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, train
from tests.fixtures.waiting import eventually
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey


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


def test_the_absence_of_receivers_is_a_problem(shared: httpx.Client) -> None:
    silent = {"names": [], "problem": "no receiver of alerts is configured"}
    eventually(lambda: shared.get("/api/v1/deliveries/receivers").json(), silent.__eq__)


TRIAL = "/api/v1/rules/kl_high/whatif"
COUNTED = ("of_rule", "messages")
RULE = "- {name: kl_high, severity: warn, when: {signal: kl_k3, above: 0.001}, summary: KL is high}"


def test_another_limit_is_judged_over_stored_runs(
    recorded: RecordedRuns, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULE)
    service = recorded.serve(recorded.finished, tmp_path / "data", rules_file=rules)
    request.addfinalizer(service.stop)
    with service.client() as client:
        [limit] = client.get("/api/v1/rules/kl_high").json()["limits"]
        assert limit == {"id": "limit", "words": "`kl_k3` is above 0.001", "limit": 0.001}
        same = _tried(client, limit=0.001)
        assert (same["n_runs"], same["n_skipped"]) == (2, 0)
        assert {name: same[f"now.{name}"] for name in COUNTED} == {name: same[f"tried.{name}"] for name in COUNTED}
        looser = _tried(client, limit=1e9)
        sent = looser["now.of_rule"]
        assert sent == same["now.of_rule"] > 0
        assert (looser["tried.of_rule"], looser["tried.messages"]) == (0, looser["now.messages"] - sent)


def _tried(client: httpx.Client, *, limit: float) -> Counter[str]:
    """Return the counts of all runs: a request reads as many as it can in its time, at least one."""
    total, before = Counter[str](), None
    while True:
        answer = client.post(TRIAL, json={"limit_id": "limit", "limit": limit, "before": before}).json()
        total.update({name: answer[name] for name in ("n_runs", "n_skipped")})
        total.update({f"{side}.{name}": answer[side][name] for side in ("now", "tried") for name in COUNTED})
        if (before := answer["next"]) is None:
            assert answer["n_left"] == 0
            return total


def test_the_limit_of_a_signal_is_tried_and_that_of_a_finding_by_the_name_of_its_clause(shared: httpx.Client) -> None:
    of_signal = shared.post("/api/v1/rules/mask_rate/whatif", json={"limit_id": "limit", "limit": 0.9})
    assert of_signal.status_code == 200
    path = "/api/v1/rules/stale_rollouts"
    names = {one["id"] for one in shared.get(path).json()["limits"]}
    assert names == {clause["id"] for clause in shared.get(path).json()["clauses"]}
    assert shared.post(f"{path}/whatif", json={"limit_id": "kl_k3", "limit": 1.0}).status_code == 200
    refused = shared.post(f"{path}/whatif", json={"limit_id": "kl_k4", "limit": 1.0})
    assert (refused.status_code, refused.json()["field"]) == (400, "limit_id")


def test_names_that_are_near_are_named_within_what_the_token_may_see(service: ThreadedService) -> None:
    with service.client() as client:
        train(client, MATH)
        train(client, RunKey("code", "grpo"))
        missed = client.get("/api/v1/runs/math/grp").json()
        assert missed["nearest"][0] == "math/grpo"
        assert "did you mean math/grpo" in missed["detail"]
        assert "nearest" not in client.get("/api/v1/runs/zzz/qqqqqqqqqqqqqqqqqqq").json()
        assert client.get("/api/v1/rules/stale_rollout").json()["nearest"] == ["stale_rollouts"]
        token = make_token(client, "reader", Scope.READ, project="code")
        client.headers.update(bearer(token))
        assert client.get("/api/v1/runs/code/grp").json()["nearest"] == ["code/grpo"]


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
