"""The audit log over HTTP: every administrative route is in it, with the token that was used."""

from __future__ import annotations

import httpx
from fastapi.routing import APIRoute

from tests.fixtures.alerting import crash
from tests.fixtures.running_service import make_token
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


def test_no_secret_is_recorded(admin: httpx.Client) -> None:
    secrets = [make_token(admin, "ci", Scope.READ), admin.post("/api/v1/tokens/ci/rotate", json={}).json()["secret"]]
    text = admin.get(AUDIT).text
    assert "token.rotate" in text
    assert not any(secret in text or secret.removeprefix("trmon_") in text for secret in secrets)


def test_only_admins_read_the_audit_log_and_a_projects_admin_its_projects(admin: httpx.Client) -> None:
    make_token(admin, "ci", Scope.READ, project="code")
    reader = make_token(admin, "reader", Scope.READ)
    boss = make_token(admin, "boss", Scope.ADMIN, project="math")
    assert admin.get(AUDIT, headers={"Authorization": f"Bearer {reader}"}).status_code == 403
    seen = admin.get(AUDIT, headers={"Authorization": f"Bearer {boss}"}).json()["items"]
    assert [(entry["action"], entry["target"], entry["project"]) for entry in seen] == [
        ("token.create", "boss", "math")
    ]
