"""The fleet over HTTP: every run with its verdict, alerts and recent course; a run beside its healthy sibling."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.fixtures.running_service import ILL, WELL, OwnRun, RecordedRuns, Serve, bearer, make_token
from tests.fixtures.trainer import MATH, corrupt, finish, send_step, train
from tests.fixtures.waiting import eventually
from trmon.domain.access import EVERYTHING, Scope
from trmon.domain.findings.verdict import Word
from trmon.domain.identity import RunKey

SICK = RunKey("math", "ill")
CODE = RunKey("code", "ppo")


def fleet(client: httpx.Client, **query: str) -> list[dict[str, Any]]:
    answer = client.get("/api/v1/fleet", params=query)
    assert answer.status_code == 200, answer.text
    items: list[dict[str, Any]] = answer.json()["items"]
    return items


def with_an_ill_run(run: OwnRun) -> OwnRun:
    """Train a sound run, and an ill one in its project, which is returned."""
    ill = OwnRun(run.client, RunKey(run.key.project, "ill"))
    run.train()
    corrupt(ill.client, ill.key)
    eventually(lambda: all(one.get()["status"]["reward"] for one in (run, ill)))
    return ill


def test_a_brief_list_has_the_newest_values_and_names_bring_the_sparklines(run: OwnRun) -> None:
    ill = with_an_ill_run(run)
    whole, brief = (fleet(run.client, project=run.key.project, brief=brief) for brief in ("false", "true"))
    short = {"reward", "kl", "mask_rate", "expected_step_seconds", "judged_at"}
    for full, one in zip(whole, brief, strict=True):
        assert {name: one[name] for name in one if name not in short} == {
            name: full[name] for name in full if name not in short
        }
        for name in ("reward", "kl"):
            known = [value for value in full[name]["values"] if value is not None]
            assert one[name] == full[name] | {"values": known[-1:]}
        assert one["mask_rate"] == pytest.approx(full["mask_rate"], rel=1e-3)
    assert [whole[0][name]["healthy_most"] for name in ("reward", "kl")] == [None, 0.005]
    asked = {"runs": f"{ill.key}, math/none,code/ill"}
    [named] = run.client.get("/api/v1/fleet/named", params=asked).json()
    assert (named["run"], named["reward"]) == ("ill", whole[0]["reward"])


@pytest.mark.parametrize("runs", ["ill", "math/", ",".join(f"math/{i}" for i in range(61))])
def test_names_of_runs_are_checked(shared: httpx.Client, runs: str) -> None:
    assert shared.get("/api/v1/fleet/named", params={"runs": runs}).status_code == 400


@pytest.mark.parametrize("acked", [["incident"], ["incident", "corrupt_logprobs"]], ids=len)
def test_acknowledging_the_incident_covers_its_symptoms(run: OwnRun, acked: list[str]) -> None:
    ill = with_an_ill_run(run)
    alerts = run.client.get("/api/v1/alerts", params={"project": ill.key.project}).json()["items"]
    [members] = [alert["members"] for alert in alerts if alert["rule"] == "incident"]
    assert {member["rule"] for member in members} == {"corrupt_logprobs"}
    for alert in alerts:
        if alert["rule"] in acked:
            run.client.post(f"/api/v1/alerts/{alert['identity']}/ack", json={"author": "ana"}).raise_for_status()
    status = ill.get()["status"]
    assert (status["verdict"]["kind"], status["verdict"]["need"]) == ("act", "none")
    assert status["incident"]["acked_by"] == "ana"


def test_a_run_before_its_first_step_is_unknown(run: OwnRun) -> None:
    run.train(steps=(), end=False)
    status = run.get()["status"]
    assert (status["verdict"]["kind"], status["verdict"]["why"]) == ("unknown", "no step has closed yet")
    assert (status["step"], status["reward"], status["kl"], status["mask_rate"]) == (None, None, None, None)


def test_the_lines_follow_the_judge_and_include_the_last_step_at_its_end(run: OwnRun) -> None:
    run.train(steps=range(3), end=False)
    eventually(lambda: run.get()["status"]["reward"])
    for step in range(3, 6):
        send_step(run.client, run.key, step=step)
    eventually(lambda: run.get()["status"], lambda status: status["reward"]["last_step"] == 3)
    finish(run.client, run.key, steps=range(6))
    assert run.get()["status"]["reward"]["last_step"] == 5


def test_the_fleet_is_paginated_and_limited_to_a_tokens_project(admin: httpx.Client) -> None:
    for key in (MATH, SICK, CODE):
        train(admin, key)
    first = admin.get("/api/v1/fleet", params={"limit": 2}).json()
    second = admin.get("/api/v1/fleet", params={"limit": 2, "after": first["next"]}).json()
    assert [run["run"] for run in (*first["items"], *second["items"])] == ["ppo", "ill", "grpo"]
    admin.headers.update(bearer(make_token(admin, "code", Scope.READ, project="code")))
    assert [run["run"] for run in fleet(admin)] == ["ppo"]
    assert admin.get("/api/v1/fleet/named", params={"runs": "math/ill"}).json() == []


def test_after_a_restart_the_first_answer_is_the_last_one_before(serve: Serve) -> None:
    service = serve(worker="process")
    with service.client() as client:
        train(client, MATH)
        corrupt(client, SICK)
        before = fleet(client)
    service.restart()
    components = service.app.state.components
    runs = components.store.runs.list(access=EVERYTHING).items
    outlooks = components.store.run_snapshots.outlooks([run.id for run in runs])
    words = {run.key: known.word for run in runs if (known := outlooks[run.id].judgement) is not None}
    assert words == {MATH: Word.OUTSIDE, SICK: Word.FINDING}
    with service.client() as client:
        for was, now in zip(before, fleet(client), strict=True):
            assert now["verdict"] == was["verdict"]
            shown = ("judged_step", "reward", "kl", "mask_rate", "expected_step_seconds")
            assert {name: now[name] for name in shown} == {name: was[name] for name in shown}


def test_a_single_run_is_compared_with_its_healthy_sibling(recorded: RecordedRuns, tmp_path: Path) -> None:
    service = recorded.serve(recorded.finished, tmp_path / "data")
    try:
        with service.client() as client:
            found = client.get("/api/v1/compare", params={"runs": str(ILL.key)}).json()
            refused = client.get("/api/v1/compare", params={"runs": str(WELL.key)})
    finally:
        service.stop()
    assert (found["proposed"], [run["fleet"]["run"] for run in found["runs"]]) == (True, [ILL.name, WELL.name])
    assert [run["fleet"]["verdict"]["kind"] for run in found["runs"]] == ["finished", "finished"]
    assert refused.status_code == 404, "an ill run is no sibling"
