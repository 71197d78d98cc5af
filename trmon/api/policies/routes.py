"""Routes of a run's policy: read, change and roll back; each change is a version with an author and a reason."""

from __future__ import annotations

import time
from dataclasses import replace

from fastapi import APIRouter

from trmon.api.http.components import Components, Service
from trmon.api.http.dependencies import Admin, Reader
from trmon.api.http.page_parameters import After, Limit
from trmon.api.http.pages import PageOut
from trmon.api.policies.schemas import PolicyChange, PolicyVersionOut, Rollback, parse_policy, parse_shadow_policy
from trmon.api.runs.routes import Named
from trmon.domain.model.access import Access
from trmon.domain.model.audit import AuditAction
from trmon.domain.model.errors import Conflict, NotFound
from trmon.domain.policies.policy_version import PolicyVersion, default_version
from trmon.domain.runs.run import Run

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"])


@router.get("/policy")
def get_policy(key: Named, access: Reader, service: Service) -> PolicyVersionOut:
    """Return the active policy."""
    run = service.store.runs.get(key, access=access)
    return PolicyVersionOut.of(service.store.policies.current(run.id, access=access))


@router.get("/policy/history")
def list_policy_versions(
    key: Named, access: Reader, service: Service, after: After = None, limit: Limit = 50
) -> PageOut[PolicyVersionOut]:
    """List the versions of the run's policy, newest first; the last one is the default of every run."""
    run = service.store.runs.get(key, access=access)
    page = service.store.policies.list(run.id, access=access, after=after, limit=limit)
    return PageOut(items=[PolicyVersionOut.of(version) for version in page.items], next=page.next)


@router.put("/policy")
def put_policy(key: Named, change: PolicyChange, access: Admin, service: Service) -> PolicyVersionOut:
    """Activate a policy; trainers receive it with their next acknowledgement."""
    run = service.store.runs.get(key, access=access)
    current = service.store.policies.current(run.id, access=access)
    shadows = current.shadows
    if change.shadows is not None:
        shadows = tuple(parse_shadow_policy(spec, field=f"shadows[{i}]") for i, spec in enumerate(change.shadows))
    version = PolicyVersion(
        policy=parse_policy(change.policy, field="policy"),
        shadows=shadows,
        author=access.name,
        reason=change.reason,
        created_at=time.time(),
        from_step=change.from_step,
        pinned=change.pinned,
    )
    return _put(service, run, version, access=access, action=AuditAction.POLICY_CHANGE, replaces=change.replaces)


@router.post("/policy/rollback")
def roll_back_policy(key: Named, rollback: Rollback, access: Admin, service: Service) -> PolicyVersionOut:
    """Activate an earlier version again, as a new version; it is pinned if a controller set the current one."""
    run = service.store.runs.get(key, access=access)
    history = _history(service, run)
    earlier = _earlier(history, rollback.hash)
    reason = rollback.reason or f"rolled back to {earlier.policy.hash[:8]}"
    version = replace(
        earlier,
        author=access.name,
        reason=reason,
        created_at=time.time(),
        from_step=0,
        # Otherwise the controller would repeat its change, because it sees the same sequences.
        pinned=earlier.pinned or history[-1].is_adapted,
    )
    return _put(service, run, version, access=access, action=AuditAction.POLICY_ROLLBACK)


def _history(service: Components, run: Run) -> list[PolicyVersion]:
    """Return the default version and all later ones, oldest first."""
    return [default_version(now=run.created_at), *service.store.policies.history(run.id)]


def _earlier(history: list[PolicyVersion], wanted: str | None) -> PolicyVersion:
    *before, current = history
    for version in reversed(before):
        if version.policy.hash == wanted or (wanted is None and version.policy.hash != current.policy.hash):
            return version
    if wanted is None:
        raise Conflict("there is no earlier version to roll back to")
    raise NotFound("policy version", wanted)


def _put(
    service: Components,
    run: Run,
    version: PolicyVersion,
    *,
    access: Access,
    action: AuditAction,
    replaces: str | None = None,
) -> PolicyVersionOut:
    service.store.policies.put(run.id, version, access=access, action=action, replaces=replaces).result()
    return PolicyVersionOut.of(version)
