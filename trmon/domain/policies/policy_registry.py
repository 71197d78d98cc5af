"""The policies that reports of a run may name: by content hash, with the current version and its shadows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trmon.domain.policies.policy_version import PolicyVersion
from trmon_client.core.policies.acceptance import PRESETS, TOKEN_POLICIES, Policy, preset


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRegistry:
    """The current policy of a run, and every one that a report of it may have been decided by."""

    current: PolicyVersion
    by_hash: Mapping[str, Policy] = field(default_factory=dict)

    @classmethod
    def of(cls, current: PolicyVersion, *, versions: Iterable[PolicyVersion] = ()) -> PolicyRegistry:
        """Return the book of a run: every version it had, and the presets at their default bounds."""
        known = [preset(name) for name in (*PRESETS, *TOKEN_POLICIES)]
        for version in (*versions, current):
            known += (version.policy, *version.shadows)
        return cls(current=current, by_hash={policy.hash: policy for policy in known})

    def find(self, policy_hash: str | None) -> Policy | None:
        """Return the policy a report names; the current one where it names none, None where it is unknown."""
        return self.current.policy if policy_hash is None else self.by_hash.get(policy_hash)

    def turning(self, current: PolicyVersion) -> PolicyRegistry:
        """Return the book with another current version; what was known stays known."""
        turned = PolicyRegistry.of(current)
        return replace(turned, by_hash={**self.by_hash, **turned.by_hash})

    def knowing(self, policy: Policy) -> PolicyRegistry:
        """Return the book with one policy more, such as the one a trainer began with."""
        return replace(self, by_hash={**self.by_hash, policy.hash: policy})
