"""Request and response schemas of policies."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.response_model import ResponseModel
from trmon.domain.model.errors import InvalidInput
from trmon.domain.policies.policy_version import PolicyVersion
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError

Spec = str | dict[str, Any]
"""A preset's name, or a policy with its name, criteria and token rules."""


class PolicyVersionOut(ResponseModel):
    """One version of a run's policy, with its author and reason."""

    name: str
    hash: str
    policy: dict[str, Any]
    shadows: list[dict[str, Any]]
    author: str
    reason: str
    created_at: float
    from_step: int
    pinned: bool
    calibration: str | None = Field(
        None,
        description="uncalibrated: the bounds are ceilings until the run has been measured; calibrated; at_ceilings; "
        "starts_ill: nothing was calibrated; null for fixed bounds.",
    )
    evidence: dict[str, Any] = Field(description="The evidence for a controller's version.")

    @classmethod
    def of(cls, version: PolicyVersion) -> Self:
        """Return the response for a version."""
        return cls.from_fields(
            version,
            name=version.policy.name,
            hash=version.policy.hash,
            policy=version.policy.spec(),
            shadows=[shadow.spec() for shadow in version.shadows],
        )


class PolicyChange(BaseModel):
    """A policy to activate; without `shadows`, the run keeps its shadow policies."""

    model_config = ConfigDict(extra="forbid")

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


class Rollback(BaseModel):
    """The earlier version to activate again; without a hash, the previous one."""

    model_config = ConfigDict(extra="forbid")

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
