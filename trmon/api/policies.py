"""The policy of a run: read, change, roll back."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from fastapi import APIRouter
from pydantic import Field

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Admin, Reader
from trmon.api.http.components import Service
from trmon.api.http.parameters import After, Limit, Named, RequestBody
from trmon.domain.access import AuditAction
from trmon.domain.errors import Conflict, InvalidInput, NotFound
from trmon.domain.policies import PolicyVersion, default_version
from trmon_client.api.answers import ItemPage
from trmon_client.api.policies import PolicyInfo
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError

Spec = str | dict[str, Any]
"""A preset's name, or a policy with its name, criteria and token rules."""


class PolicyChange(RequestBody):
    """A policy to activate; without `shadows`, the run keeps its shadow policies."""

    policy: Spec = Field(examples=["geo_mask"])
    shadows: list[Spec] | None = Field(None, max_length=16)
    reason: str = Field("", max_length=1000)
    from_step: int = Field(0, ge=0, lt=1 << 62, description="The first step it applies to, on a best-effort basis.")
    pinned: bool = Field(False, description="Prevent controllers from changing it.")
    replaces: str | None = Field(
        None,
        max_length=64,
        description="The hash of the policy that it replaces; 409 if another one is current by now.",
    )


class Rollback(RequestBody):
    """The earlier version to activate again; without a hash, the previous one."""

    hash: str | None = Field(None, max_length=64)
    reason: str = Field("", max_length=1000)


def parse_policy(spec: Spec, *, field: str) -> Policy:
    """Return a policy. Errors: InvalidInput naming the field."""
    try:
        return Policy.parse(spec)
    except PolicyError as error:
        raise InvalidInput(field, str(error)) from error


def parse_shadow_policy(spec: Spec, *, field: str) -> Policy:
    """Return a policy that the service can replay. Errors: InvalidInput unless it has criteria for sequences."""
    policy = parse_policy(spec, field=field)
    if not policy.criteria:
        raise InvalidInput(
            field, f"{policy.name} has no criteria for sequences, which a shadow needs; token rules run in the trainer"
        )
    return policy


router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"], route_class=AnswerRoute)


@router.get("/policy")
def get_policy(key: Named, access: Reader, service: Service) -> PolicyInfo:
    """Return the active policy."""
    run = service.store.runs.get(key, access=access)
    return policy_info(service.store.policies.current(run.id, access=access))


@router.get("/policy/history")
def list_policy_versions(
    key: Named, access: Reader, service: Service, after: After = None, limit: Limit = 50
) -> ItemPage[PolicyInfo]:
    """List the versions of the run's policy, newest first; the last one is the default of every run."""
    run = service.store.runs.get(key, access=access)
    page = service.store.policies.list(run.id, access=access, after=after, limit=limit)
    return ItemPage(items=[policy_info(version) for version in page.items], next=page.next)


@router.put("/policy")
def put_policy(key: Named, change: PolicyChange, access: Admin, service: Service) -> PolicyInfo:
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
    service.store.policies.put(
        run.id, version, access=access, action=AuditAction.POLICY_CHANGE, replaces=change.replaces
    ).result()
    return policy_info(version)


@router.post("/policy/rollback")
def roll_back_policy(key: Named, rollback: Rollback, access: Admin, service: Service) -> PolicyInfo:
    """Activate an earlier version again, as a new version; it is pinned if a controller set the current one."""
    run = service.store.runs.get(key, access=access)
    history = [default_version(now=run.created_at), *service.store.policies.history(run.id)]
    earlier = _earlier(history, rollback.hash)
    version = replace(
        earlier,
        author=access.name,
        reason=rollback.reason or f"rolled back to {earlier.policy.hash[:8]}",
        created_at=time.time(),
        from_step=0,
        # Otherwise the controller would repeat its change, because it sees the same sequences.
        pinned=earlier.pinned or history[-1].is_adapted,
    )
    service.store.policies.put(run.id, version, access=access, action=AuditAction.POLICY_ROLLBACK).result()
    return policy_info(version)


def _earlier(history: list[PolicyVersion], wanted: str | None) -> PolicyVersion:
    """Return a version to go back to. Args: history: the default version and all later ones, oldest first."""
    *before, current = history
    for version in reversed(before):
        if version.policy.hash == wanted or (wanted is None and version.policy.hash != current.policy.hash):
            return version
    if wanted is None:
        raise Conflict("there is no earlier version to roll back to")
    raise NotFound("policy version", wanted)


def policy_info(version: PolicyVersion) -> PolicyInfo:
    """Return the response for a version."""
    return PolicyInfo.from_fields(
        version,
        name=version.policy.name,
        hash=version.policy.hash,
        policy=version.policy.spec(),
        shadows=[shadow.spec() for shadow in version.shadows],
    )
