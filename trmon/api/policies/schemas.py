"""Policies in answers and requests."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from trmon.domain.model.errors import InvalidInput
from trmon.domain.policies.policy_version import PolicyVersion
from trmon_client.core.policies.acceptance import Policy, PolicyError

Spec = str | dict[str, Any]
"""A preset's name, or a policy's name, criteria and token rules."""


class PolicyVersionOut(BaseModel):
    """One version of a run's policy, and who set it why."""

    name: str
    hash: str
    policy: dict[str, Any]
    shadows: list[dict[str, Any]]
    author: str
    reason: str
    created_at: float
    from_step: int
    pinned: bool
    evidence: dict[str, Any] = Field(description="What a controller's version rests on.")

    @classmethod
    def of(cls, version: PolicyVersion) -> Self:
        """Return a version as answered."""
        return cls(
            name=version.policy.name,
            hash=version.policy.hash,
            policy=version.policy.spec(),
            shadows=[shadow.spec() for shadow in version.shadows],
            author=version.author,
            reason=version.reason,
            created_at=version.created_at,
            from_step=version.from_step,
            pinned=version.pinned,
            evidence=dict(version.evidence),
        )


class PolicyChange(BaseModel):
    """A policy to put in force; without `shadows`, the run keeps those it has."""

    model_config = ConfigDict(extra="forbid")

    policy: Spec = Field(examples=["geo_mask"])
    shadows: list[Spec] | None = Field(None, max_length=16)
    reason: str = Field("", max_length=1000)
    from_step: int = Field(0, ge=0, lt=1 << 62, description="The first step it should apply to; best effort.")
    pinned: bool = Field(False, description="Keep controllers from changing it.")


class Rollback(BaseModel):
    """Which earlier version to put in force again; without a hash, the one before the current one."""

    model_config = ConfigDict(extra="forbid")

    hash: str | None = Field(None, max_length=64)
    reason: str = Field("", max_length=1000)


def parse_policy(spec: Spec, *, field: str) -> Policy:
    """Return a policy, or raise InvalidInput naming the field."""
    try:
        return Policy.parse(spec)
    except PolicyError as error:
        raise InvalidInput(field, str(error)) from error


def parse_shadow_policy(spec: Spec, *, field: str) -> Policy:
    """Return a policy to decide by here, or raise InvalidInput: columns do not hold what token rules need."""
    policy = parse_policy(spec, field=field)
    if not policy.criteria:
        raise InvalidInput(
            field, f"{policy.name} has token rules alone, and these work in the trainer; a shadow needs criteria"
        )
    return policy
