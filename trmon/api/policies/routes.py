"""The policy of a run: read, changed, and rolled back; every change is a version with an author and a reason."""

from __future__ import annotations

import time
from dataclasses import replace

from fastapi import APIRouter

from trmon.api.http.components import Components, Service
from trmon.api.http.dependencies import Admin, Reader
from trmon.api.http.pages import After, Limit, PageOut
from trmon.api.policies.schemas import PolicyChange, PolicyVersionOut, Rollback, parse_policy, parse_shadow_policy
from trmon.api.runs.routes import Named
from trmon.domain.model.errors import Conflict, NotFound
from trmon.domain.policies.policy_version import PolicyVersion, default_version
from trmon.domain.runs.run import Run

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"])


@router.get("/policy")
def get_policy(key: Named, access: Reader, service: Service) -> PolicyVersionOut:
    """Return the policy in force."""
    run = service.store.runs.get(key, access=access)
    return PolicyVersionOut.of(service.store.policies.current(run.id, access=access))


@router.get("/policy/history")
def list_policy_versions(
    key: Named, access: Reader, service: Service, after: After = None, limit: Limit = 50
) -> PageOut[PolicyVersionOut]:
    """List the versions the run's policy had, newest first; the last is what every run begins with."""
    run = service.store.runs.get(key, access=access)
    page = service.store.policies.list(run.id, access=access, after=after, limit=limit)
    return PageOut(items=[PolicyVersionOut.of(version) for version in page.items], next=page.next)


@router.put("/policy")
def put_policy(key: Named, change: PolicyChange, access: Admin, service: Service) -> PolicyVersionOut:
    """Put a policy in force; trainers hear of it with their next report."""
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
    return _put(service, run, version)


@router.post("/policy/rollback")
def roll_back_policy(key: Named, rollback: Rollback, access: Admin, service: Service) -> PolicyVersionOut:
    """Put an earlier version in force again, as a new version; what a controller had changed is pinned."""
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
        # Over the same sequences the controller would make the same change again.
        pinned=earlier.pinned or history[-1].is_adapted,
    )
    return _put(service, run, version)


def _history(service: Components, run: Run) -> list[PolicyVersion]:
    """Return what was set, after what every run starts with."""
    return [default_version(now=run.created_at), *service.store.policies.history(run.id)]


def _earlier(history: list[PolicyVersion], wanted: str | None) -> PolicyVersion:
    *before, current = history
    for version in reversed(before):
        if version.policy.hash == wanted or (wanted is None and version.policy.hash != current.policy.hash):
            return version
    if wanted is None:
        raise Conflict("there is no other version to roll back to")
    raise NotFound("policy version", wanted)


def _put(service: Components, run: Run, version: PolicyVersion) -> PolicyVersionOut:
    service.store.policies.put(run.id, version).result()
    return PolicyVersionOut.of(version)
