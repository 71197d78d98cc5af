"""The alarm budget over HTTP, another limit over stored runs, and names that do not exist."""

from __future__ import annotations

from pathlib import Path

import httpx

from tests.fixtures.alerting import crash
from tests.fixtures.running_service import RecordedRuns, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, train
from trmon.domain.access import Scope
from trmon.domain.identity import RunKey

TRIAL = "/api/v1/rules/kl_high/whatif"


def test_a_crash_is_a_message_that_harm_followed(service: ThreadedService) -> None:
    with service.client() as client:
        crash(client)
        found = client.get("/api/v1/alerts/budget").json()
    assert [window["days"] for window in found["windows"]] == [7, 30]
    for window in found["windows"]:
        [rule] = window["rules"]
        assert rule == {
            "rule": "crashed",
            "title": "crashed",
            "messages": 1,
            "per_run_day": None,
            "alerts": 1,
            "acknowledged": 0,
            "silenced": 0,
            "harmed": 1,
            "is_tunable": False,
            "unanswered": 0,
        }
        assert 0 < window["run_days"] < 1


RULE = "- {name: kl_high, severity: warn, when: {signal: kl_k3, above: 0.001}, summary: KL is high}"


def test_another_limit_is_judged_over_stored_runs(recorded: RecordedRuns, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULE)
    service = recorded.serve(recorded.finished, tmp_path / "data", rules_file=rules)
    with service.client() as client:
        [limit] = client.get("/api/v1/rules/kl_high").json()["limits"]
        assert limit == {"id": "limit", "words": "`kl_k3` is above 0.001", "limit": 0.001}
        same = client.post(TRIAL, json={"limit_id": "limit", "limit": 0.001}).json()
        assert (same["n_runs"], same["n_left"], same["n_skipped"], same["next"]) == (2, 0, 0, None)
        assert same["now"] == same["tried"]
        looser = client.post(TRIAL, json={"limit_id": "limit", "limit": 1e9}).json()
        sent = looser["now"]["of_rule"]
        assert looser["now"] == same["now"]
        assert sent > 0
        assert (looser["tried"]["of_rule"], looser["tried"]["messages"]) == (0, looser["now"]["messages"] - sent)
    service.stop()


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
        client.headers["Authorization"] = f"Bearer {token}"
        assert client.get("/api/v1/runs/code/grp").json()["nearest"] == ["code/grpo"]
