"""Runs over HTTP: list, read, change, delete."""

from __future__ import annotations

import httpx
import pytest

from tests.fixtures.running_service import OwnRun
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import train
from tests.fixtures.waiting import eventually
from trmon.domain.access import EVERYTHING
from trmon.domain.identity import RunKey


@pytest.fixture
def run(run: OwnRun) -> OwnRun:
    run.train()
    return run


def listed(client: httpx.Client, **query: str) -> list[str]:
    answer = client.get("/api/v1/runs", params=query)
    assert answer.status_code == 200, answer.text
    return [f"{run['project']}/{run['run']}" for run in answer.json()["items"]]


def test_a_run_comes_with_its_row_of_the_fleet_and_the_parts_asked_for(run: OwnRun) -> None:
    alone = run.get()
    parts = ("diagnosis", "alerts", "policies", "attempts", "notes", "adaptation")
    whole = run.get(f"?include={','.join(parts)}")
    assert set(whole) == {*alone, *parts}
    [row] = run.client.get("/api/v1/fleet", params={"project": run.key.project}).json()["items"]
    assert alone["status"] == row
    assert whole["diagnosis"] == run.get("/diagnosis")
    assert whole["policies"] == run.get("/policy/history")["items"]
    assert whole["attempts"] == run.get("/attempts")["items"]
    assert whole["adaptation"] == run.get("/adaptation")
    assert (whole["alerts"], whole["notes"]) == ([], [])
    refused = run.ask("GET", "?include=notes,tokens")
    assert (refused.status_code, refused.json()["field"]) == (400, "include")


def test_runs_are_listed_newest_first_filtered_and_in_pages(run: OwnRun) -> None:
    other = RunKey(run.key.project, "ppo")
    train(run.client, other, steps=[0], end=False)
    project = run.key.project
    assert listed(run.client, project=project) == [str(other), str(run.key)]
    assert listed(run.client, project=project, state="finished") == [str(run.key)]
    # What a start says of its run is taken up by the worker, after the start was acknowledged.
    eventually(lambda: listed(run.client, project=project, tag="dapo", owner="me"), lambda found: len(found) == 2)
    assert listed(run.client, project=project, owner="nobody") == []
    first = run.client.get("/api/v1/runs", params={"project": project, "limit": 1}).json()
    assert listed(run.client, project=project, after=first["next"]) == [str(run.key)]


def test_a_change_of_name_tags_owner_and_archive_is_one_transaction(
    run: OwnRun, shared_service: ThreadedService
) -> None:
    store = shared_service.app.state.components.store
    run_id = store.runs.get(run.key, access=EVERYTHING).id
    edits: list[int] = []
    store.writer.on_commit(lambda commit: edits.extend(id_ for id_ in commit.edited if id_ == run_id))
    change = {"tags": ["b", "a"], "owner": "you", "archived": True, "name": "grpo-1"}
    changed = run.ask("PATCH", body=change).json()
    assert edits == [run_id]
    assert (changed["run"], changed["tags"], changed["owner"]) == ("grpo-1", ["a", "b"], "you")
    assert listed(run.client, project=run.key.project) == []
    assert listed(run.client, project=run.key.project, archived="true") == [f"{run.key.project}/grpo-1"]
    assert run.ask("GET").status_code == 404


def test_single_tags_are_added_and_removed_and_what_is_omitted_stays(run: OwnRun) -> None:
    changed = run.ask("PATCH", body={"add_tags": ["x", "dapo"], "remove_tags": ["unknown"]}).json()
    assert (changed["tags"], changed["owner"], changed["archived"]) == (["dapo", "x"], "me", False)
    assert run.ask("PATCH", body={"remove_tags": ["dapo"]}).json()["tags"] == ["x"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"add_tags": ["a"], "remove_tags": ["a"]}, "'a' is in add_tags too"),
        ({"add_tags": [f"t{i}" for i in range(64)]}, "would make 65 tags; a run has at most 64"),
        ({"add_tags": ["no name"]}, "not a valid name"),
    ],
)
def test_a_wrong_change_of_tags_is_refused(run: OwnRun, change: dict[str, list[str]], said: str) -> None:
    refused = run.ask("PATCH", body=change)
    assert (refused.status_code, said in refused.json()["detail"]) == (400, True), refused.text
    assert run.get()["tags"] == ["dapo"]


def test_a_deleted_run_is_gone_with_all_its_data(run: OwnRun) -> None:
    assert run.ask("DELETE").status_code == 204
    assert listed(run.client, project=run.key.project) == []
    assert run.ask("GET", "/batches").status_code == 404
    assert run.ask("DELETE").status_code == 404
