"""Tokens over HTTP: the secret is shown once, and a project's admin manages its project only."""

from __future__ import annotations

import httpx
import pytest

from tests.fixtures.running_service import make_token
from trmon.domain.model.access import Scope

TOKENS = "/api/v1/tokens"


def test_a_token_is_created_listed_and_revoked(client: httpx.Client) -> None:
    root = make_token(client, "root", Scope.ADMIN)
    client.headers["Authorization"] = f"Bearer {root}"
    make_token(client, "ci", Scope.READ, Scope.INGEST, project="math")
    listed = client.get(TOKENS).json()
    assert [(token["name"], token["scopes"], token["project"]) for token in listed] == [
        ("ci", ["ingest", "read"], "math"),
        ("root", ["admin"], None),
    ]
    assert all(token["expires_at"] > token["created_at"] and "secret" not in token for token in listed)
    assert client.delete(f"{TOKENS}/ci").status_code == 204
    assert client.delete(f"{TOKENS}/ci").status_code == 404
    assert [token["name"] for token in client.get(TOKENS).json()] == ["root"]


def test_a_token_name_is_unique(admin: httpx.Client) -> None:
    assert admin.post(TOKENS, json={"name": "root", "scopes": ["read"]}).status_code == 409


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"name": "x"}, "scopes"),
        ({"name": "x", "scopes": []}, "scopes"),
        ({"name": "x", "scopes": ["root"]}, "scopes.0"),
        ({"name": "a b", "scopes": ["read"]}, "name"),
        ({"name": "x", "scopes": ["read"], "project": "-"}, "project"),
        ({"name": "x", "scopes": ["read"], "days": 0}, "days"),
    ],
    ids=str,
)
def test_an_invalid_token_is_refused_with_its_field(
    client: httpx.Client, wanted: dict[str, object], field: str
) -> None:
    answer = client.post(TOKENS, json=wanted)
    assert answer.status_code == 400
    assert answer.json()["field"] == field


def test_a_projects_admin_manages_tokens_of_its_project_only(admin: httpx.Client) -> None:
    make_token(admin, "other", Scope.READ, project="code")
    own = make_token(admin, "boss", Scope.ADMIN, project="math")
    admin.headers["Authorization"] = f"Bearer {own}"
    assert [token["name"] for token in admin.get(TOKENS).json()] == ["boss"]
    assert admin.delete(f"{TOKENS}/other").status_code == 404
    assert admin.post(TOKENS, json={"name": "x", "scopes": ["read"]}).status_code == 403
    assert admin.post(TOKENS, json={"name": "x", "scopes": ["read"], "project": "code"}).status_code == 403
    assert admin.post(TOKENS, json={"name": "x", "scopes": ["read"], "project": "math"}).status_code == 201
