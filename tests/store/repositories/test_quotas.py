"""Tests quotas: stored, listed, deleted with their last limit, and what a project uses."""

from __future__ import annotations

from tests.store.builders import CODE, NOW, append, report_intake
from trmon.domain.access import EVERYTHING, AuditAction, Quota
from trmon.domain.identity import RunKey
from trmon.store import Store

MATH = Quota(project="math", max_runs=3, max_bytes=1 << 40, reports_per_second=0.5)


def put(store: Store, quota: Quota) -> None:
    """Set a quota."""
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
