"""Tokens, the audit log and quotas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.store.builders import CODE, NOW, append, paged, report_intake
from trmon.domain.access import EVERYTHING, Access, AuditAction, Quota, Scope, Token
from trmon.domain.errors import Conflict, NotFound
from trmon.domain.identity import RunKey
from trmon.store import Store
from trmon_client.api.administration import AuditEntryInfo


def create(store: Store, name: str, **fields: Any) -> Token:
    """Create a token that may ingest and read."""
    given = {"digest": f"digest of {name}", "scopes": {Scope.READ, Scope.INGEST}, **fields}
    return store.tokens.create(name=name, created_at=NOW, **given)


def revoke(store: Store, name: str, *, force: bool = False) -> None:
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


ANA = Access(name="ana", scopes=frozenset({Scope.ADMIN}), token_id=7)
GRPO = RunKey("math", "grpo")


def entries(store: Store, access: Access = EVERYTHING) -> list[AuditEntryInfo]:
    """Return all entries, oldest first."""
    return list(reversed(store.audit.list(access=access).items))


def test_a_token_is_recorded_without_its_secret(store: Store) -> None:
    token = store.tokens.create(name="ci", digest="d1g3st", scopes={Scope.READ}, created_at=NOW, access=ANA)
    [entry] = entries(store)
    assert entry == AuditEntryInfo(
        id=entry.id,
        at=NOW,
        actor="ana",
        token_id=7,
        action=AuditAction.TOKEN_CREATE.value,
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
    assert (revoked.action, revoked.before, revoked.after) == (AuditAction.TOKEN_REVOKE.value, rotated.after, None)
    assert "d1g3st" not in str(entries(store))
    assert "sec0nd" not in str(entries(store))


def test_a_refused_action_is_not_recorded(store: Store) -> None:
    store.tokens.create(name="root", digest="d", scopes={Scope.ADMIN}, created_at=NOW, access=ANA)
    with pytest.raises(Conflict):
        store.tokens.revoke("root", access=ANA, now=NOW).result(10)
    with pytest.raises(Conflict):
        store.tokens.create(name="root", digest="e", scopes={Scope.READ}, created_at=NOW, access=ANA)
    assert [entry.action for entry in entries(store)] == [AuditAction.TOKEN_CREATE.value]


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


MATH = Quota(project="math", max_runs=3, max_bytes=1 << 40, reports_per_second=0.5)


def put(store: Store, quota: Quota) -> None:
    store.quotas.put(quota, access=EVERYTHING, now=NOW).result(10)


def test_a_quota_is_set_replaced_and_deleted_with_its_last_limit(store: Store) -> None:
    code = Quota(project="code", max_runs=0)
    put(store, MATH)
    put(store, code)
    assert store.quotas.list(access=EVERYTHING) == (code, MATH)
    assert store.quotas.list(access=CODE) == (code,)
    put(store, Quota(project="code"))
    put(store, Quota(project="math", max_runs=4))
    assert store.quotas.list(access=EVERYTHING) == (Quota(project="math", max_runs=4),)


def test_a_change_is_recorded_with_the_limits_before_and_after(store: Store) -> None:
    put(store, MATH)
    put(store, Quota(project="math"))
    deleted, created = store.audit.list(access=EVERYTHING, action=AuditAction.QUOTA_CHANGE).items
    assert (created.target, created.project, created.before) == ("math", "math", None)
    assert created.after == {"project": "math", "max_runs": 3, "max_bytes": 1 << 40, "reports_per_second": 0.5}
    assert (deleted.before, deleted.after) == (created.after, None)


def test_usage_counts_runs_and_report_bytes_of_the_project(store: Store) -> None:
    assert (store.quotas.usage("math").runs, store.quotas.usage("math").report_bytes) == (frozenset(), 0)
    first, second = report_intake(), report_intake(step=8)
    append(store, first)
    append(store, second)
    usage = store.quotas.usage("math")
    assert usage.runs == {"grpo"}
    assert usage.report_bytes == len(first.payload) + len(second.payload)
    assert store.quotas.existing([RunKey("math", "grpo"), RunKey("code", "grpo")]) == {RunKey("math", "grpo")}
