"""Runs over HTTP: list, read, change, delete, and the notes on them; what deletion resolves at receivers."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from tests.fixtures.alerting import crash, notifying
from tests.fixtures.alertmanager import active, alertmanager
from tests.fixtures.messages import ORIGIN
from tests.fixtures.receiver import WebhookServer
from tests.fixtures.running_service import OwnRun, Serve, bearer, make_token
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send, train
from tests.fixtures.waiting import eventually
from trmon.domain.access import EVERYTHING, Scope
from trmon.domain.identity import RunKey
from trmon_client.core import wire


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


def test_a_deleted_run_is_gone_with_all_its_data(run: OwnRun) -> None:
    assert run.ask("DELETE").status_code == 204
    assert listed(run.client, project=run.key.project) == []
    assert run.ask("GET", "/batches").status_code == 404
    assert run.ask("DELETE").status_code == 404


NOTES = "/api/v1/runs/math/grpo/notes"


def test_a_reader_reads_and_an_admin_writes(admin: httpx.Client, service: ThreadedService) -> None:
    send(admin, MATH, wire.Start(**ORIGIN))
    token = make_token(admin, "reader", Scope.READ)
    with service.client(headers=bearer(token)) as reader:
        assert reader.post(NOTES, json={"text": "x"}).status_code == 403
        assert admin.post(NOTES, json={"text": "x"}).json()["author"] == "root"
        [note] = reader.get(NOTES).json()["items"]
        assert reader.delete(f"{NOTES}/{note['id']}").status_code == 403


RUN = "/api/v1/runs/math/grpo"


def incidents(pager: WebhookServer) -> list[tuple[str, str]]:
    """Return the events at PagerDuty: action and incident."""
    events = [json.loads(posted.body) for posted in pager.posted]
    return [(event["event_action"], event["dedup_key"]) for event in events]


def statuses(hook: WebhookServer) -> list[tuple[str, str]]:
    """Return the notifications at the webhook: state and reason."""
    return [(alert["status"], alert["reason"]) for posted in hook.posted for alert in json.loads(posted.body)["alerts"]]


def test_a_deletion_resolves_the_notified_alerts(serve: Serve, pager: WebhookServer, hook: WebhookServer) -> None:
    service = notifying(serve, hook, pager)
    with service.client() as client:
        crash(client)
        eventually(lambda: len(pager.posted) + len(hook.posted), lambda n: n == 2)
        assert client.delete(RUN).status_code == 204
        eventually(lambda: len(pager.posted) + len(hook.posted), lambda n: n == 4)
        assert client.get("/api/v1/alerts").json()["items"] == []
    incident = "trmon:math/grpo:crashed:"
    assert incidents(pager) == [("trigger", incident), ("resolve", incident)]
    assert [state for state, _ in statuses(hook)] == ["firing", "resolved"]
    assert statuses(hook)[-1][1] == "the run was deleted"


def test_a_receiver_in_an_outage_is_notified_after_a_restart(
    serve: Serve, pager: WebhookServer, hook: WebhookServer
) -> None:
    service = notifying(serve, hook, pager)
    with service.client() as client:
        crash(client)
        eventually(lambda: len(pager.posted) + len(hook.posted), lambda n: n == 2)
        pager.statuses[:] = [503]
        assert client.delete(RUN).status_code == 204
        eventually(lambda: len(pager.posted), lambda n: n >= 2)
    service.stop()
    pager.statuses[:] = [200]
    told = len(pager.posted)
    service.start()
    eventually(lambda: len(pager.posted), lambda n: n > told)
    assert incidents(pager)[-1][0] == "resolve"


@pytest.mark.server("prometheus-alertmanager")
def test_an_alertmanager_drops_the_alert(serve: Serve, tmp_path: Path) -> None:
    with alertmanager(tmp_path) as api:
        service = serve(alertmanager_url=str(api.base_url), webhook_allow_hosts="127.0.0.1")
        with service.client() as client:
            crash(client)
            eventually(lambda: active(api))
            assert client.delete(RUN).status_code == 204
            eventually(lambda: active(api), lambda found: found == [])


def test_a_new_run_under_the_same_name_sends_new_notifications(
    serve: Serve, pager: WebhookServer, hook: WebhookServer
) -> None:
    service = notifying(serve, hook, pager)
    with service.client() as client:
        _crash_and_delete(client, pager, n_told=2)
        _crash_and_delete(client, pager, n_told=4)
    assert [action for action, _ in incidents(pager)] == ["trigger", "resolve"] * 2


def _crash_and_delete(client: httpx.Client, pager: WebhookServer, *, n_told: int) -> None:
    crash(client)
    eventually(lambda: len(pager.posted), lambda n: n == n_told - 1)
    assert client.delete(RUN).status_code == 204
    eventually(lambda: len(pager.posted), lambda n: n == n_told)


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
