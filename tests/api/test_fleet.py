"""The fleet over HTTP: every run with its verdict, alerts and recent course."""

from __future__ import annotations

import time
from typing import Any

import httpx
import pytest

from tests.fixtures.running_service import Serve, make_token
from tests.fixtures.trainer import MATH, corrupt, finish, send_step, train
from tests.fixtures.waiting import eventually
from trmon.domain.access import EVERYTHING, Scope
from trmon.domain.identity import RunKey

ILL = RunKey("math", "ill")
CODE = RunKey("code", "ppo")


def fleet(client: httpx.Client, **query: str) -> list[dict[str, Any]]:
    answer = client.get("/api/v1/fleet", params=query)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


@pytest.fixture
def two_runs(client: httpx.Client) -> httpx.Client:
    train(client, MATH)
    corrupt(client, ILL)
    # A request diagnoses runs for a quarter of a second at most; later ones go on.
    eventually(lambda: all("not diagnosed yet" not in run["verdict"]["why"] for run in fleet(client)))
    return client


def test_a_run_has_its_verdict_and_recent_course(two_runs: httpx.Client) -> None:
    ill, well = fleet(two_runs)
    assert (ill["project"], ill["run"], ill["owner"], ill["state"]) == ("math", "ill", "me", "running")
    assert (ill["verdict"]["kind"], ill["verdict"]["need"], ill["verdict"]["since_step"]) == ("act", "now", 0)
    assert ill["verdict"]["why"].startswith("corrupt log-probs since step 0")
    assert ill["verdict"]["todo"].startswith("Check the log-prob stream first")
    firing = {(alert["rule"], alert["severity"]) for alert in ill["alerts"]}
    assert firing == {("corrupt_logprobs", "page"), ("invalid_logprobs", "warn")}
    assert (well["verdict"]["kind"], well["verdict"]["need"]) == ("watch", "soon")
    assert well["verdict"]["why"].endswith("; ended at step 2")
    assert (well["reward"]["first_step"], well["reward"]["last_step"], len(well["reward"]["values"])) == (0, 2, 3)
    assert all(value > 0 for value in well["kl"]["values"])
    assert well["mask_rate"] == 0.0


def test_a_brief_list_has_the_newest_values_and_names_bring_the_sparklines(two_runs: httpx.Client) -> None:
    whole, brief = fleet(two_runs), fleet(two_runs, brief="true")
    short = {"reward", "kl", "mask_rate", "expected_step_seconds"}
    for full, one in zip(whole, brief, strict=True):
        assert {name: one[name] for name in one if name not in short} == {
            name: full[name] for name in full if name not in short
        }
        for name in ("reward", "kl"):
            known = [value for value in full[name]["values"] if value is not None]
            assert one[name] == full[name] | {"values": known[-1:]}
        assert one["mask_rate"] == pytest.approx(full["mask_rate"], rel=1e-3)
    asked = {"runs": "math/ill, math/none,code/ill"}
    [named] = two_runs.get("/api/v1/fleet/named", params=asked).json()
    assert (named["run"], named["reward"]) == ("ill", whole[0]["reward"])


@pytest.mark.parametrize("runs", ["ill", "math/", ",".join(f"math/{i}" for i in range(61))])
def test_names_of_runs_are_checked(client: httpx.Client, runs: str) -> None:
    assert client.get("/api/v1/fleet/named", params={"runs": runs}).status_code == 400


def test_an_ill_run_has_its_incident_and_lists_no_rule_of_that_name(two_runs: httpx.Client) -> None:
    ill, well = fleet(two_runs)
    incident = ill["incident"]
    known = {"finding": "A'", "title": "corrupt log-probs", "cause": "corrupt_logprobs", "severity": "page"}
    assert {name: incident[name] for name in known} == known
    assert (incident["since_step"], incident["last_good_step"], incident["state"]) == (0, None, "firing")
    assert incident["opened_at"] > 0
    assert incident["ended_at"] is None
    assert well["incident"] is None
    listed, other = two_runs.get("/api/v1/runs").json()["items"]
    assert (listed["incident"], other["incident"]) == (incident, None)
    assert "incident" not in listed["firing"]
    diagnosis = two_runs.get("/api/v1/runs/math/ill/diagnosis").json()
    assert (diagnosis["primary"], diagnosis["since_step"], diagnosis["incident"]) == ("A'", 0, incident)
    (shown,) = [line for line in two_runs.get("/metrics").text.splitlines() if line.startswith("trmon_incident_since")]
    assert 'finding="A\'"' in shown
    assert shown.endswith(" 0.0")


def test_a_run_keeps_that_it_ended_ill(two_runs: httpx.Client) -> None:
    finish(two_runs, ILL, steps=range(6))
    ill = eventually(lambda: two_runs.get("/api/v1/runs/math/ill").json()["status"], lambda run: run["alerts"] == [])
    assert (ill["state"], ill["verdict"]["kind"], ill["verdict"]["need"]) == ("finished", "ended_ill", "soon")
    assert ill["verdict"]["why"].startswith("corrupt log-probs since step 0; ended at step ")
    assert (ill["incident"]["state"], ill["incident"]["ended_with_run"]) == ("resolved", True)
    diagnosis = two_runs.get("/api/v1/runs/math/ill/diagnosis").json()
    assert (diagnosis["primary"], diagnosis["since_step"]) == ("A'", 0)


def test_acknowledging_the_incident_covers_its_symptoms(two_runs: httpx.Client) -> None:
    (incident,) = [one for one in two_runs.get("/api/v1/alerts").json()["items"] if one["rule"] == "incident"]
    assert incident["title"] == "corrupt log-probs"
    assert {member["rule"] for member in incident["members"]} == {"corrupt_logprobs", "invalid_logprobs"}
    answer = two_runs.post(f"/api/v1/alerts/{incident['identity']}/ack", json={"author": "ana"})
    assert (answer.status_code, answer.json()["ack"]["author"]) == (200, "ana")
    ill = fleet(two_runs)[0]
    assert (ill["verdict"]["need"], ill["incident"]["acked_by"]) == ("none", "ana")


def test_an_acknowledged_run_is_no_longer_urgent(two_runs: httpx.Client) -> None:
    for alert in two_runs.get("/api/v1/alerts").json()["items"]:
        two_runs.post(f"/api/v1/alerts/{alert['identity']}/ack", json={"author": "ana"})
    ill = fleet(two_runs)[0]
    assert (ill["verdict"]["kind"], ill["verdict"]["need"]) == ("act", "none")
    assert ill["alerts"][0]["acked_by"] == "ana"


def test_a_run_before_its_first_step_is_unknown(client: httpx.Client) -> None:
    train(client, MATH, steps=(), end=False)
    (run,) = fleet(client)
    assert (run["verdict"]["kind"], run["verdict"]["why"]) == ("unknown", "no step has closed yet")
    assert (run["step"], run["reward"], run["kl"], run["mask_rate"]) == (None, None, None, None)


def test_the_summary_is_updated_while_a_failing_run_continues(two_runs: httpx.Client) -> None:
    send_step(two_runs, ILL, step=6)
    send_step(two_runs, ILL, step=7)
    eventually(
        lambda: two_runs.get("/api/v1/runs/math/ill").json()["status"],
        lambda run: run["step"] == 7 and run["reward"]["last_step"] == 6,
    )


def test_the_verdict_on_an_ended_run_includes_its_last_step_at_once(client: httpx.Client) -> None:
    train(client, MATH, steps=range(3), end=False)
    eventually(lambda: fleet(client)[0]["reward"])
    for step in range(3, 6):
        send_step(client, MATH, step=step)
    finish(client, MATH, steps=range(6))
    (run,) = fleet(client)
    assert (run["state"], run["reward"]["last_step"]) == ("finished", 5)


def test_the_fleet_is_paginated_and_filtered_by_project(two_runs: httpx.Client) -> None:
    train(two_runs, CODE)
    first = two_runs.get("/api/v1/fleet", params={"limit": 2}).json()
    second = two_runs.get("/api/v1/fleet", params={"limit": 2, "after": first["next"]}).json()
    assert [run["run"] for run in (*first["items"], *second["items"])] == ["ppo", "ill", "grpo"]
    assert [run["run"] for run in fleet(two_runs, project="code")] == ["ppo"]
    two_runs.headers["Authorization"] = f"Bearer {make_token(two_runs, 'code', Scope.READ, project='code')}"
    assert [run["run"] for run in fleet(two_runs)] == ["ppo"]
    assert two_runs.get("/api/v1/fleet/named", params={"runs": "math/ill"}).json() == []


@pytest.mark.parametrize("worker", ["thread", "process"])
def test_after_a_restart_the_first_answer_needs_no_diagnosis(serve: Serve, worker: str) -> None:
    service = serve(worker=worker)
    with service.client() as client:
        train(client, MATH)
        corrupt(client, ILL)
        store = service.app.state.components.store
        eventually(lambda: len(fleet(client)) == 2 and not store.summaries.outdated())
        before = fleet(client)
    service.restart()
    components = service.app.state.components
    runs = components.store.runs.list(access=EVERYTHING).items
    stored = components.summaries.of(runs, access=EVERYTHING, now=time.time(), budget_seconds=0.0)
    assert {run.key: stored[run.id].diagnosis.primary.value for run in runs} == {MATH: "A", ILL: "A'"}
    with service.client() as client:
        for was, now in zip(before, fleet(client), strict=True):
            assert (now["verdict"]["todo"], now["verdict"]["since_step"]) == (
                was["verdict"]["todo"],
                was["verdict"]["since_step"],
            )
            shown = ("judged_step", "reward", "kl", "mask_rate", "expected_step_seconds")
            assert {name: now[name] for name in shown} == {name: was[name] for name in shown}
