"""Tests the audit log: an entry is written with its action or not at all, and is seen by its project's admins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.store.builders import CODE, NOW, paged, silence
from trmon.domain.access import EVERYTHING, Access, AuditAction, AuditEntry, Scope
from trmon.domain.adaptation.proposal import AdaptationMode, AdaptationSetting
from trmon.domain.errors import Conflict
from trmon.domain.identity import RunKey
from trmon.domain.policies import default_version
from trmon.store import Store
from trmon_client.core.policies.policy import preset

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


def test_a_policy_is_recorded_with_the_one_before(store: Store, run_id: int) -> None:
    first = default_version(now=NOW)
    second = replace(first, policy=preset("seq_mis"), author="ana", reason="too strict")
    store.policies.put(run_id, second, access=ANA).result(10)
    store.policies.put(run_id, first, access=ANA, action=AuditAction.POLICY_ROLLBACK).result(10)
    store.policies.put(run_id, second).result(10)
    changed, rolled_back = entries(store)
    assert (changed.target, changed.project) == ("math/grpo", "math")
    assert (changed.before["hash"], changed.after["hash"]) == (first.policy.hash, second.policy.hash)
    assert changed.after["reason"] == "too strict"
    assert (rolled_back.action, rolled_back.before) == (AuditAction.POLICY_ROLLBACK, changed.after)


def test_an_adaptation_setting_is_recorded_with_the_one_before(store: Store, run_id: int) -> None:
    for mode in (AdaptationMode.RECOMMEND, AdaptationMode.OFF):
        store.adaptations.put(run_id, AdaptationSetting(mode=mode), access=ANA, now=NOW).result(10)
    first, second = entries(store)
    assert (first.before, first.after["mode"]) == (None, "recommend")
    assert (second.before, second.after["mode"]) == (first.after, "off")


def test_a_change_and_the_deletion_of_a_run_are_recorded(store: Store, run_id: int) -> None:
    store.runs.update(GRPO, access=ANA, now=NOW, name="ppo", tags=["kept"], owner="ana").result(10)
    store.runs.delete(RunKey("math", "ppo"), access=ANA, now=NOW)
    changed, deleted = entries(store)
    assert changed.before == {"name": "grpo", "owner": None, "tags": [], "archived": False}
    assert changed.after == {"name": "ppo", "owner": "ana", "tags": ["kept"], "archived": False}
    assert (deleted.action, deleted.target) == (AuditAction.RUN_DELETE, "math/ppo")
    assert (deleted.before, deleted.after) == (changed.after, None)


def test_a_silence_and_its_end_are_recorded(store: Store) -> None:
    made = silence(store, project="math", note="tests")
    store.silences.expire(made.id, access=ANA, now=NOW + 30).result(10)
    created, ended = entries(store)
    assert (created.target, created.after["note"]) == (str(made.id), "tests")
    assert (ended.before, ended.after) == ({"ends_at": NOW + 60}, {"ends_at": NOW + 30})


def test_a_projects_admin_sees_its_project_only(store: Store, run_id: int) -> None:
    store.runs.update(GRPO, access=ANA, now=NOW, owner="ana").result(10)
    for project in ("code", None):
        store.tokens.create(name="ci", digest=f"{project}", scopes={Scope.READ}, created_at=NOW, project=project)
    assert [entry.project for entry in entries(store)] == ["math", "code", None]
    assert [entry.project for entry in entries(store, CODE)] == ["code"]
    assert store.audit.list(access=CODE, project="math").items == ()


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
