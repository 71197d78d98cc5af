"""Tests tokens, which are found by the digest of their secret."""

from __future__ import annotations

import pytest

from tests.store.builders import NOW
from trmon.domain.model.access import Scope, Token
from trmon.domain.model.errors import Conflict, NotFound
from trmon.store import Store


def create(store: Store, name: str, **fields: object) -> Token:
    """Create a token that may ingest and read."""
    scopes = {Scope.READ, Scope.INGEST}
    return store.tokens.create(name=name, digest=f"digest of {name}", scopes=scopes, created_at=NOW, **fields)


def test_a_token_is_found_by_its_digest(store: Store) -> None:
    assert not store.tokens.any()
    token = create(store, "ci", project="math", expires_at=NOW + 60)
    assert store.tokens.by_digest("digest of ci") == token
    assert (token.scopes, token.project, token.expires_at) == ({Scope.READ, Scope.INGEST}, "math", NOW + 60)
    assert store.tokens.any()
    assert store.tokens.by_digest("another") is None


def test_a_duplicate_name_is_refused(store: Store) -> None:
    create(store, "ci")
    with pytest.raises(Conflict, match="'ci'"):
        create(store, "ci")


def test_tokens_are_listed_by_name(store: Store) -> None:
    tokens = [create(store, name) for name in ("b", "a")]
    assert store.tokens.list() == tuple(reversed(tokens))


def test_a_revoked_token_is_not_found(store: Store) -> None:
    create(store, "ci")
    store.tokens.revoke("ci").result(10)
    assert store.tokens.by_digest("digest of ci") is None
    with pytest.raises(NotFound):
        store.tokens.revoke("ci").result(10)
