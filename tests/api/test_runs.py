"""Runs over HTTP: list, read, change, delete."""

from __future__ import annotations

import httpx
import pytest

from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, train
from tests.fixtures.waiting import eventually
from trmon.domain.access import EVERYTHING
from trmon.domain.identity import RunKey

CODE = RunKey("code", "ppo")


@pytest.fixture
def two_runs(client: httpx.Client) -> httpx.Client:
    train(client, MATH)
    train(client, CODE, steps=[0], end=False)
    return client


def listed(client: httpx.Client, **query: str) -> list[str]:
    answer = client.get("/api/v1/runs", params=query)
    assert answer.status_code == 200, answer.text
    return [f"{run['project']}/{run['run']}" for run in answer.json()["items"]]


def test_a_run_has_its_state_and_last_step(two_runs: httpx.Client) -> None:
    run = two_runs.get("/api/v1/runs/math/grpo").json()
    assert (run["state"], run["last_step"], run["owner"], run["tags"]) == ("finished", 2, "me", ["dapo"])
    assert run["config"] == {"lr": 1e-3}
    assert run["mask_rate"] == 0.0
    assert run["firing"] == []


def test_a_run_comes_with_its_row_of_the_fleet_and_the_parts_asked_for(two_runs: httpx.Client) -> None:
    path = "/api/v1/runs/math/grpo"
    alone = two_runs.get(path).json()
    parts = ("diagnosis", "alerts", "policies", "attempts", "notes", "adaptation")
    whole = two_runs.get(path, params={"include": ",".join(parts)}).json()
    assert set(whole) == {*alone, *parts}
    assert [alone["status"]] == two_runs.get("/api/v1/fleet/named", params={"runs": "math/grpo"}).json()
    assert whole["diagnosis"] == two_runs.get(f"{path}/diagnosis").json()
    assert whole["policies"] == two_runs.get(f"{path}/policy/history").json()["items"]
    assert whole["attempts"] == two_runs.get(f"{path}/attempts").json()["items"]
    assert whole["adaptation"] == two_runs.get(f"{path}/adaptation").json()
    assert (whole["alerts"], whole["notes"]) == ([], [])


def test_an_unknown_part_of_a_run_is_refused(two_runs: httpx.Client) -> None:
    answer = two_runs.get("/api/v1/runs/math/grpo", params={"include": "notes,tokens"})
    assert (answer.status_code, answer.json()["field"]) == (400, "include")


def test_runs_are_listed_newest_first_and_filtered(two_runs: httpx.Client) -> None:
    assert listed(two_runs) == ["code/ppo", "math/grpo"]
    assert listed(two_runs, project="math") == ["math/grpo"]
    assert listed(two_runs, state="finished") == ["math/grpo"]
    # What a start says of its run is taken up by the worker, after the start was acknowledged.
    eventually(lambda: listed(two_runs, tag="dapo", owner="me", project="code"), lambda found: found == ["code/ppo"])
    assert listed(two_runs, owner="nobody") == []


def test_runs_are_paginated(two_runs: httpx.Client) -> None:
    first = two_runs.get("/api/v1/runs", params={"limit": 1}).json()
    second = two_runs.get("/api/v1/runs", params={"limit": 1, "after": first["next"]}).json()
    assert [page["items"][0]["project"] for page in (first, second)] == ["code", "math"]
    assert second["next"] is None


def test_a_run_can_be_tagged_archived_renamed_and_change_owner(two_runs: httpx.Client) -> None:
    change = {"tags": ["b", "a"], "owner": "you", "archived": True, "name": "grpo-1"}
    run = two_runs.patch("/api/v1/runs/math/grpo", json=change).json()
    assert (run["run"], run["tags"], run["owner"], run["archived"]) == ("grpo-1", ["a", "b"], "you", True)
    assert listed(two_runs) == ["code/ppo"]
    assert listed(two_runs, archived="true") == ["math/grpo-1"]
    assert two_runs.get("/api/v1/runs/math/grpo").status_code == 404


def test_a_change_is_one_transaction(service: ThreadedService, two_runs: httpx.Client) -> None:
    store = service.app.state.components.store
    run_id = store.runs.get(MATH, access=EVERYTHING).id
    edits: list[int] = []
    store.writer.on_commit(lambda commit: edits.extend(id_ for id_ in commit.edited if id_ == run_id))
    assert two_runs.patch("/api/v1/runs/math/grpo", json={"name": "grpo-1", "tags": ["a"]}).status_code == 200
    assert edits == [run_id]


def test_omitted_fields_stay(two_runs: httpx.Client) -> None:
    run = two_runs.patch("/api/v1/runs/math/grpo", json={"archived": False}).json()
    assert (run["owner"], run["tags"]) == ("me", ["dapo"])


def test_single_tags_are_added_and_removed(two_runs: httpx.Client) -> None:
    change = {"add_tags": ["x", "dapo"], "remove_tags": ["unknown"]}
    assert two_runs.patch("/api/v1/runs/math/grpo", json=change).json()["tags"] == ["dapo", "x"]
    assert two_runs.patch("/api/v1/runs/math/grpo", json={"remove_tags": ["dapo"]}).json()["tags"] == ["x"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"add_tags": ["a"], "remove_tags": ["a"]}, "'a' is in add_tags too"),
        ({"add_tags": [f"t{i}" for i in range(64)]}, "would make 65 tags; a run has at most 64"),
        ({"add_tags": ["no name"]}, "not a valid name"),
    ],
)
def test_a_wrong_change_of_tags_is_refused(two_runs: httpx.Client, change: dict[str, list[str]], said: str) -> None:
    refused = two_runs.patch("/api/v1/runs/math/grpo", json=change)
    assert (refused.status_code, said in refused.json()["detail"]) == (400, True), refused.text
    assert two_runs.get("/api/v1/runs/math/grpo").json()["tags"] == ["dapo"]


def test_a_name_that_is_taken_is_a_conflict(two_runs: httpx.Client) -> None:
    train(two_runs, RunKey("math", "other"), steps=[0], end=False)
    change = {"name": "other", "tags": ["changed"], "archived": True}
    assert two_runs.patch("/api/v1/runs/math/grpo", json=change).status_code == 409
    run = two_runs.get("/api/v1/runs/math/grpo").json()
    assert (run["tags"], run["archived"]) == (["dapo"], False)


def test_a_deleted_run_is_gone_with_all_its_data(two_runs: httpx.Client) -> None:
    assert two_runs.delete("/api/v1/runs/math/grpo").status_code == 204
    assert listed(two_runs) == ["code/ppo"]
    assert two_runs.get("/api/v1/runs/math/grpo/batches").status_code == 404
    assert two_runs.delete("/api/v1/runs/math/grpo").status_code == 404


def test_attempts_are_listed(two_runs: httpx.Client) -> None:
    attempts = two_runs.get("/api/v1/runs/math/grpo/attempts").json()["items"]
    assert [(attempt["name"], attempt["ordinal"], attempt["world_size"]) for attempt in attempts] == [("first", 1, 1)]
