"""Tokens over HTTP: the secret is shown once, and a project's admin manages its project only."""

from __future__ import annotations

import time

import httpx

from tests.fixtures.running_service import make_token
from tests.fixtures.waiting import eventually
from trmon.domain.access import Scope

TOKENS = "/api/v1/tokens"


def test_a_projects_admin_learns_nothing_of_other_projects_token_names(admin: httpx.Client) -> None:
    make_token(admin, "secret-launch", Scope.READ, project="code")
    make_token(admin, "ci", Scope.READ)
    own = make_token(admin, "boss", Scope.ADMIN, project="math")
    admin.headers["Authorization"] = f"Bearer {own}"
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


def test_a_rotated_token_works_beside_the_new_one_until_the_overlap_ends(admin: httpx.Client) -> None:
    old = make_token(admin, "ci", Scope.READ, project="math")
    rotated = admin.post(f"{TOKENS}/ci/rotate", json={"overlap_hours": 1, "days": 7})
    assert rotated.status_code == 201
    made = rotated.json()
    assert (made["name"], made["scopes"], made["project"], made["replaced_at"]) == ("ci", ["read"], "math", None)
    replaced, current = (token for token in admin.get(TOKENS).json() if token["name"] == "ci")
    assert 0 < replaced["expires_at"] - replaced["replaced_at"] <= 3600
    assert current["expires_at"] - current["created_at"] == 7 * 86_400
    for secret in (old, made["secret"]):
        assert admin.get("/api/v1/runs", headers={"Authorization": f"Bearer {secret}"}).status_code == 200
    again = admin.post(f"{TOKENS}/ci/rotate", json={"overlap_hours": 0}).json()["secret"]
    answered = [
        admin.get("/api/v1/runs", headers={"Authorization": f"Bearer {secret}"}).status_code
        for secret in (old, made["secret"], again)
    ]
    assert answered == [200, 401, 200]
    assert admin.delete(f"{TOKENS}/ci").status_code == 204
    assert admin.get("/api/v1/runs", headers={"Authorization": f"Bearer {old}"}).status_code == 401


def test_the_last_use_is_shown(admin: httpx.Client) -> None:
    reader = make_token(admin, "reader", Scope.READ)

    def last_used_at() -> float | None:
        [token] = [token for token in admin.get(TOKENS).json() if token["name"] == "reader"]
        return token["last_used_at"]

    assert last_used_at() is None
    before = time.time()
    admin.get("/api/v1/runs", headers={"Authorization": f"Bearer {reader}"})
    assert eventually(last_used_at) >= before


def test_a_projects_admin_manages_tokens_of_its_project_only(admin: httpx.Client) -> None:
    make_token(admin, "other", Scope.READ, project="code")
    own = make_token(admin, "boss", Scope.ADMIN, project="math")
    admin.headers["Authorization"] = f"Bearer {own}"
    assert [token["name"] for token in admin.get(TOKENS).json()] == ["boss"]
    assert admin.delete(f"{TOKENS}/other").status_code == 404
    assert admin.post(TOKENS, json={"name": "x", "scopes": ["read"]}).status_code == 403
    assert admin.post(TOKENS, json={"name": "x", "scopes": ["read"], "project": "code"}).status_code == 403
    assert admin.post(TOKENS, json={"name": "x", "scopes": ["read"], "project": "math"}).status_code == 201
