"""Tests tokens, which are found by the digest of their secret."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.store.builders import NOW
from trmon.domain.access import EVERYTHING, Scope, Token
from trmon.domain.errors import Conflict, NotFound
from trmon.store import Store


def create(store: Store, name: str, **fields: object) -> Token:
    """Create a token that may ingest and read."""
    given = {"digest": f"digest of {name}", "scopes": {Scope.READ, Scope.INGEST}, **fields}
    return store.tokens.create(name=name, created_at=NOW, **given)  # type: ignore[arg-type]


def revoke(store: Store, name: str, *, force: bool = False) -> None:
    """Revoke a token of any project."""
    store.tokens.revoke(name, access=EVERYTHING, now=NOW, force=force).result(10)


def rotate(store: Store, name: str, *, overlap_seconds: float, now: float = NOW) -> Token:
    """Rotate a token; the new one expires after 1000 s."""
    return store.tokens.rotate(
        name,
        access=EVERYTHING,
        now=now,
        digest=f"digest of {name} at {now}",
        expires_at=now + 1000,
        overlap_seconds=overlap_seconds,
    ).result(10)


def test_a_token_is_found_by_its_digest(store: Store) -> None:
    assert not store.tokens.ever_created()
    token = create(store, "ci", project="math", expires_at=NOW + 60)
    assert store.tokens.by_digest("digest of ci") == token
    assert (token.scopes, token.project, token.expires_at) == ({Scope.READ, Scope.INGEST}, "math", NOW + 60)
    assert store.tokens.ever_created()
    assert store.tokens.by_digest("another") is None


@pytest.mark.parametrize("project", [None, "math"])
def test_a_duplicate_name_of_a_project_is_refused(store: Store, project: str | None) -> None:
    create(store, "ci", project=project)
    with pytest.raises(Conflict, match="'ci'"):
        create(store, "ci", project=project, digest="another")
    create(store, "ci", project="code", digest="a third")


def test_a_revoked_token_is_not_found_but_the_service_stays_closed(store: Store) -> None:
    create(store, "ci")
    revoke(store, "ci")
    assert store.tokens.by_digest("digest of ci") is None
    assert store.tokens.list(access=EVERYTHING) == ()
    with pytest.raises(NotFound):
        revoke(store, "ci")
    assert store.tokens.ever_created()
    create(store, "ci", digest="another")


def test_the_last_valid_admin_token_is_revoked_by_force_only(store: Store) -> None:
    create(store, "root", scopes={Scope.ADMIN})
    create(store, "expired", scopes={Scope.ADMIN}, expires_at=NOW)
    create(store, "of a project", scopes={Scope.ADMIN}, project="math")
    with pytest.raises(Conflict, match="trmon token revoke root --force"):
        revoke(store, "root")
    assert store.tokens.has_admin(now=NOW)
    revoke(store, "expired")
    revoke(store, "root", force=True)
    assert not store.tokens.has_admin(now=NOW)


def test_a_rotated_token_expires_after_the_overlap_but_never_later_than_before(store: Store) -> None:
    old = create(store, "ci", project="math", expires_at=NOW + 60)
    new = rotate(store, "ci", overlap_seconds=30)
    replaced = store.tokens.by_digest("digest of ci")
    assert replaced is not None
    assert (replaced.id, replaced.expires_at, replaced.replaced_at) == (old.id, NOW + 30, NOW)
    assert (new.name, new.scopes, new.project, new.expires_at) == ("ci", old.scopes, "math", NOW + 1000)
    assert store.tokens.list(access=EVERYTHING) == (replaced, new)
    rotate(store, "ci", overlap_seconds=5000, now=NOW + 1)
    assert store.tokens.by_digest(f"digest of ci at {NOW}") == replace(new, expires_at=NOW + 1000, replaced_at=NOW + 1)


def test_revoking_a_rotated_token_ends_the_replaced_one_too(store: Store) -> None:
    create(store, "ci")
    other = create(store, "ci", project="math", digest="of math")
    rotate(store, "ci", overlap_seconds=60)
    assert store.tokens.by_digest("digest of ci") is not None
    revoke(store, "ci")
    assert store.tokens.by_digest("digest of ci") is None
    assert store.tokens.by_digest("of math") == other


def test_without_an_overlap_the_old_token_ends_at_once(store: Store) -> None:
    last = create(store, "ci")
    first = create(store, "a")
    assert store.tokens.list(access=EVERYTHING) == (first, last)
    rotate(store, "ci", overlap_seconds=0)
    assert store.tokens.by_digest("digest of ci") is None


def test_the_last_use_is_written_once_a_minute(store: Store) -> None:
    token = create(store, "ci")
    for seconds in (0, 59, 60):
        store.tokens.mark_used(token, now=NOW + seconds)
        create(store, f"after {seconds}")
        found = store.tokens.by_digest("digest of ci")
        assert found is not None
        assert found.last_used_at == (NOW if seconds < 60 else NOW + 60)
