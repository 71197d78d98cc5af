"""Tokens, quotas and the audit log over HTTP, and a trainer that meets a quota: it continues and counts losses."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

import trmon_client as trmon
from tests.client.trainer import batch
from tests.fixtures.alerting import crash
from tests.fixtures.running_service import OwnRun, bearer, make_token
from tests.fixtures.waiting import eventually
from trmon.api.http.auth import require_admin
from trmon.bootstrap.app import ROUTERS
from trmon.domain.access import AuditAction, Scope

AUDIT = "/api/v1/audit"
COMMAND_ACTIONS = {AuditAction.RUN_IMPORT, AuditAction.DATABASE_RESTORE}
"""What only commands do."""


PREVIEW = ("POST", "/api/v1/silences/preview")
"""Changes nothing, so it is not recorded."""


def administrative_routes() -> set[tuple[str, str]]:
    """Return method and path of the routes that demand the admin scope and change something."""
    routes = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    return {
        (method, route.path.replace(":path", ""))
        for route in routes
        for method in route.methods - {"GET"}
        if any(dependency.call is require_admin for dependency in route.dependant.dependencies)
    }


def test_every_administrative_route_is_recorded(admin: httpx.Client) -> None:
    alert = crash(admin)
    changed: set[tuple[str, str]] = set()

    def change(method: str, route: str, body: object = None, **names: object) -> httpx.Response:
        changed.add((method, route))
        answer = admin.request(method, route.format(project="math", run="grpo", **names), json=body)
        assert answer.is_success, answer.text
        return answer

    run = "/api/v1/runs/{project}/{run}"
    change("PUT", run + "/policy", {"policy": "seq_mis", "reason": "try"})
    change("POST", run + "/policy/rollback", {})
    change("PUT", run + "/adaptation", {"mode": "recommend"})
    change("PATCH", run, {"owner": "ana"})
    change("PUT", "/api/v1/quotas/{project}", {"max_runs": 5})
    change("POST", "/api/v1/tokens", {"name": "ci", "scopes": ["read"], "project": "math"})
    change("POST", "/api/v1/tokens/{name}/rotate", {}, name="ci")
    change("DELETE", "/api/v1/tokens/{name}", name="ci")
    wanted = {"matchers": [{"label": "run", "value": "grpo"}], "seconds": 60}
    change(*PREVIEW, wanted)
    silence = change("POST", "/api/v1/silences", wanted)
    change("DELETE", "/api/v1/silences/{silence_id}", silence_id=silence.json()["id"])
    change("POST", "/api/v1/alerts/{identity}/ack", {"note": "seen"}, identity=alert["identity"])
    change("POST", "/api/v1/alerts/ack", {"identities": [alert["identity"], "99/none"], "note": "seen"})
    note = change("POST", run + "/notes", {"text": "restarted"})
    change("DELETE", run + "/notes/{note_id}", note_id=note.json()["id"])
    change("DELETE", run)

    assert changed == administrative_routes()
    recorded = admin.get(AUDIT, params={"limit": 100}).json()["items"]
    assert {entry["action"] for entry in recorded} == {action.value for action in set(AuditAction) - COMMAND_ACTIONS}
    assert len(recorded) == len(changed - {PREVIEW}) + 1, "the creation of the admin token is recorded as well"
    *by_root, first = recorded
    assert (first["actor"], first["token_id"], first["target"]) == ("local", None, "root")
    assert {(entry["actor"], entry["token_id"]) for entry in by_root} == {("root", first["after"]["token_id"])}


QUOTAS = "/api/v1/quotas"


def test_a_projects_admin_sees_the_log_and_the_quota_of_its_project_and_cannot_raise_it(admin: httpx.Client) -> None:
    for project in ("math", "code"):
        assert admin.put(f"{QUOTAS}/{project}", json={"max_runs": 2}).status_code == 200
    make_token(admin, "ci", Scope.READ, project="code")
    reader = make_token(admin, "reader", Scope.READ)
    boss = make_token(admin, "boss", Scope.ADMIN, project="math")
    assert admin.get(AUDIT, headers=bearer(reader)).status_code == 403
    admin.headers.update(bearer(boss))
    entries = admin.get(AUDIT).json()["items"]
    assert [(entry["action"], entry["project"]) for entry in entries] == [
        ("token.create", "math"),
        ("quota.change", "math"),
    ]
    assert [quota["project"] for quota in admin.get(QUOTAS).json()] == ["math"]
    assert admin.put(f"{QUOTAS}/math", json={}).status_code == 403


def test_a_trainer_above_the_quota_goes_on_and_its_losses_are_counted(
    run: OwnRun, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    project, client = run.key.project, run.client

    def metric(name: str) -> float:
        lines = client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(name))

    assert client.put(f"{QUOTAS}/{project}", json={"max_bytes": 10}).status_code == 200
    refused = f'trmon_quota_refused_total{{project="{project}",resource="bytes"}}'
    of_run = {"project": project, "run": run.key.run, "url": str(client.base_url)}
    with trmon.init(**of_run, spool_dir=tmp_path / "spool") as monitor:
        for step in range(5):
            assert monitor.log_batch(step=step, **batch()).mask.all()
            eventually(lambda: metric(refused), (step + 1.0).__eq__)
    assert capfd.readouterr().err.count(f"raise max_bytes with `PUT /api/v1/quotas/{project}`") == 1
    assert metric('trmon_dropped_total{reason="refused"}') >= 4, "the last one may be refused after the finish"


TOKENS = "/api/v1/tokens"


def test_a_projects_admin_manages_its_tokens_and_learns_nothing_of_the_names_of_others(admin: httpx.Client) -> None:
    make_token(admin, "secret-launch", Scope.READ, project="code")
    make_token(admin, "ci", Scope.READ)
    own = make_token(admin, "boss", Scope.ADMIN, project="math")
    admin.headers.update(bearer(own))
    assert [token["name"] for token in admin.get(TOKENS).json()] == ["boss"]
    for project in ({}, {"project": "code"}):
        assert admin.post(TOKENS, json={"name": "x", "scopes": ["read"], **project}).status_code == 403
    for name in ("secret-launch", "ci", "root", "free"):
        assert admin.post(TOKENS, json={"name": name, "scopes": ["read"], "project": "math"}).status_code == 201
        assert admin.delete(f"{TOKENS}/{name}").status_code == 204
        assert admin.delete(f"{TOKENS}/{name}", params={"project": "code"}).status_code == 404
        assert admin.post(f"{TOKENS}/{name}/rotate", json={}).status_code == 404


def test_a_name_in_several_projects_needs_the_project(admin: httpx.Client) -> None:
    for project in ("math", "code"):
        make_token(admin, "ci", Scope.READ, project=project)
    refused = admin.delete(f"{TOKENS}/ci")
    assert refused.status_code == 409
    assert "code, math" in refused.json()["detail"]
    assert admin.delete(f"{TOKENS}/ci", params={"project": "math"}).status_code == 204
    assert admin.delete(f"{TOKENS}/ci").status_code == 204


def test_a_rotated_token_works_beside_the_new_one_until_the_overlap_ends_and_its_last_use_is_shown(
    admin: httpx.Client,
) -> None:
    old = make_token(admin, "ci", Scope.READ, project="math")
    began, rotated = time.time(), admin.post(f"{TOKENS}/ci/rotate", json={"overlap_hours": 1, "days": 7})
    assert rotated.status_code == 201
    made = rotated.json()
    assert (made["name"], made["scopes"], made["project"], made["replaced_at"]) == ("ci", ["read"], "math", None)
    replaced, current = (token for token in admin.get(TOKENS).json() if token["name"] == "ci")
    assert 0 < replaced["expires_at"] - replaced["replaced_at"] <= 3600
    assert current["expires_at"] - current["created_at"] == 7 * 86_400
    for secret in (old, made["secret"]):
        assert admin.get("/api/v1/runs", headers=bearer(secret)).status_code == 200
    used = eventually(
        lambda: [token["last_used_at"] for token in admin.get(TOKENS).json() if token["name"] == "ci"], all
    )
    assert (replaced["last_used_at"], current["last_used_at"], min(used) >= began) == (None, None, True)
    again = admin.post(f"{TOKENS}/ci/rotate", json={"overlap_hours": 0}).json()["secret"]
    answered = [
        admin.get("/api/v1/runs", headers=bearer(secret)).status_code for secret in (old, made["secret"], again)
    ]
    assert answered == [200, 401, 200]
    assert admin.delete(f"{TOKENS}/ci").status_code == 204
    assert admin.get("/api/v1/runs", headers=bearer(old)).status_code == 401
