"""Alerts over HTTP: from the trainer to the receiver, listed if that fails; their budget, another limit."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import Counter
from pathlib import Path

import httpx
import pytest

from tests.fixtures.alerting import crash, deliveries, notifying
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import RecordedRuns, Serve, bearer, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, train
from tests.fixtures.waiting import eventually
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey


@pytest.fixture
def paging(serve: Serve, hook: WebhookServer) -> ThreadedService:
    return notifying(serve, hook, webhook_secret="swordfish")


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


TRIAL = "/api/v1/rules/kl_high/whatif"


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


COUNTED = ("of_rule", "messages")


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


def test_a_limit_of_a_finding_is_tried_by_the_name_of_its_clause(shared: httpx.Client) -> None:
    path = "/api/v1/rules/stale_rollouts"
    names = {one["id"] for one in shared.get(path).json()["limits"]}
    assert names == {clause["id"] for clause in shared.get(path).json()["clauses"]}
    assert shared.post(f"{path}/whatif", json={"limit_id": "kl_k3", "limit": 1.0}).status_code == 200
    refused = shared.post(f"{path}/whatif", json={"limit_id": "kl_k4", "limit": 1.0})
    assert (refused.status_code, refused.json()["field"]) == (400, "limit_id")


def test_a_rule_over_a_signal_has_one_limit_and_one_over_states_none(shared: httpx.Client) -> None:
    limits = {rule["name"]: [one["id"] for one in rule["limits"]] for rule in shared.get("/api/v1/rules").json()}
    assert limits["mask_rate"] == ["limit"]
    assert limits["stalled"] == []
    tried = shared.post("/api/v1/rules/mask_rate/whatif", json={"limit_id": "limit", "limit": 0.9})
    assert tried.status_code == 200


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
