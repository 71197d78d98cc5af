"""Runs over HTTP: list, read, change, delete, and the notes on them; what deletion resolves at receivers."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.fixtures.alerting import crash, notifying
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import OwnRun, Serve
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


RUN = "/api/v1/runs/math/grpo"


def incidents(pager: WebhookServer) -> list[tuple[str, str]]:
    """Return the events at PagerDuty: action and incident."""
    events = [json.loads(posted.body) for posted in pager.posted]
    return [(event["event_action"], event["dedup_key"]) for event in events]


def statuses(hook: WebhookServer) -> list[tuple[str, str]]:
    """Return the notifications at the webhook: state and reason."""
    return [(alert["status"], alert["reason"]) for posted in hook.posted for alert in json.loads(posted.body)["alerts"]]


def test_a_deletion_resolves_the_notified_alerts_and_a_new_run_of_that_name_has_new_ones(
    serve: Serve, pager: WebhookServer, hook: WebhookServer
) -> None:
    service = notifying(serve, hook, pager)
    with service.client() as client:
        for n_before in (0, 4):
            crash(client)
            eventually(lambda: len(pager.posted) + len(hook.posted), (n_before + 2).__eq__)
            assert client.delete(RUN).status_code == 204
            eventually(lambda: len(pager.posted) + len(hook.posted), (n_before + 4).__eq__)
            assert client.get("/api/v1/alerts").json()["items"] == []
    incident = "trmon:math/grpo:crashed:"
    assert incidents(pager) == [("trigger", incident), ("resolve", incident)] * 2
    assert [state for state, _ in statuses(hook)] == ["firing", "resolved"] * 2
    assert statuses(hook)[-1][1] == "the run was deleted"


def test_a_renamed_run_is_notified_under_its_new_name_and_resolved_under_the_old(
    serve: Serve, pager: WebhookServer, hook: WebhookServer
) -> None:
    old, new = "trmon:math/grpo:crashed:", "trmon:math/other:crashed:"
    service = notifying(serve, hook, pager)
    with service.client() as client:
        crash(client)
        eventually(lambda: len(pager.posted) + len(hook.posted), lambda n: n == 2)
        assert client.patch(RUN, json={"name": "other"}).status_code == 200
        eventually(lambda: incidents(pager), lambda told: sorted(told[1:]) == [("resolve", old), ("trigger", new)])
        assert client.delete("/api/v1/runs/math/other").status_code == 204
        eventually(lambda: incidents(pager)[-1], lambda told: told == ("resolve", new))
