"""Tests the audit log: an entry is written with its action or not at all, and is seen by its project's admins."""

from __future__ import annotations

import pytest

from tests.store.builders import NOW, paged
from trmon.domain.access import EVERYTHING, Access, AuditAction, AuditEntry, Scope
from trmon.domain.errors import Conflict
from trmon.domain.identity import RunKey
from trmon.store import Store

ANA = Access(name="ana", scopes=frozenset({Scope.ADMIN}), token_id=7)
GRPO = RunKey("math", "grpo")


def entries(store: Store, access: Access = EVERYTHING) -> list[AuditEntry]:
    """Return all entries, oldest first."""
    return list(reversed(store.audit.list(access=access).items))


def test_a_token_is_recorded_without_its_secret(store: Store) -> None:
    token = store.tokens.create(name="ci", digest="d1g3st", scopes={Scope.READ}, created_at=NOW, access=ANA)
    [entry] = entries(store)
    assert entry == AuditEntry(
        id=entry.id,
        at=NOW,
        actor="ana",
        token_id=7,
        action=AuditAction.TOKEN_CREATE,
        project=None,
        target="ci",
        before=None,
        after={"token_id": token.id, "scopes": ["read"], "expires_at": None},
    )
    rotation = {"digest": "sec0nd", "expires_at": NOW + 9, "overlap_seconds": 5}
    new = store.tokens.rotate("ci", access=ANA, now=NOW, **rotation).result(10)
    store.tokens.revoke("ci", access=ANA, now=NOW).result(10)
    _, rotated, revoked = entries(store)
    assert (rotated.before, rotated.after) == (
        {"token_id": token.id, "scopes": ["read"], "expires_at": NOW + 5},
        {"token_id": new.id, "scopes": ["read"], "expires_at": NOW + 9},
    )
    assert (revoked.action, revoked.before, revoked.after) == (AuditAction.TOKEN_REVOKE, rotated.after, None)
    assert "d1g3st" not in str(entries(store))
    assert "sec0nd" not in str(entries(store))


def test_a_refused_action_is_not_recorded(store: Store) -> None:
    store.tokens.create(name="root", digest="d", scopes={Scope.ADMIN}, created_at=NOW, access=ANA)
    with pytest.raises(Conflict):
        store.tokens.revoke("root", access=ANA, now=NOW).result(10)
    with pytest.raises(Conflict):
        store.tokens.create(name="root", digest="e", scopes={Scope.READ}, created_at=NOW, access=ANA)
    assert [entry.action for entry in entries(store)] == [AuditAction.TOKEN_CREATE]


def test_entries_are_filtered_and_paged_newest_first(store: Store) -> None:
    for at in range(5):
        store.audit.record(ANA, AuditAction.RUN_IMPORT, at=NOW + at, target=str(at), project="math").result(10)
    store.audit.record(EVERYTHING, AuditAction.DATABASE_RESTORE, at=NOW + 9, target="trmon.sqlite").result(10)
    assert [entry.target for entry in paged(store.audit.list, actor="ana", limit=2)] == ["4", "3", "2", "1", "0"]
    assert [entry.target for entry in store.audit.list(access=EVERYTHING, since=NOW + 4).items] == ["trmon.sqlite", "4"]
    restored = store.audit.list(access=EVERYTHING, action=AuditAction.DATABASE_RESTORE).items
    assert [entry.actor for entry in restored] == ["local"]


def test_old_entries_are_pruned(store: Store) -> None:
    for at in (0, 50, 100):
        store.audit.record(ANA, AuditAction.RUN_IMPORT, at=NOW + at, target=str(at)).result(10)
    pruned = store.retention.prune(
        now=NOW + 100, max_age_seconds=1, max_bytes_per_run=0, max_bytes=0, max_audit_age_seconds=60
    )
    assert pruned.audit == 1
    assert [entry.target for entry in entries(store)] == ["50", "100"]
