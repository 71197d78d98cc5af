"""The policies that reports of a run may name, by content hash, and the current version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trmon.domain.policies.policy_version import PolicyVersion
from trmon_client.core.policies.policy import Policy, preset, preset_names

FORMER_PRESETS = (replace(preset("seq_mis_mask"), name="seq_mis"),)
"""Presets as clients of earlier versions decide by them; until semantics 2, `seq_mis` was the mask alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRegistry:
    """The current policy of a run, and all policies that may have decided its reports."""

    current: PolicyVersion
    by_hash: Mapping[str, Policy] = field(default_factory=dict)

    @classmethod
    def of(cls, current: PolicyVersion, *, versions: Iterable[PolicyVersion] = ()) -> PolicyRegistry:
        """Return the registry of a run: all its policy versions, and the presets with their default bounds."""
        known = [*FORMER_PRESETS, *map(preset, preset_names())]
        for version in (*versions, current):
            known += (version.policy, *version.shadows)
        return cls(current=current, by_hash={policy.hash: policy for policy in known})

    def find(self, policy_hash: str | None) -> Policy | None:
        """Return the policy with a hash; the current one if the hash is None, None if it is unknown."""
        return self.current.policy if policy_hash is None else self.by_hash.get(policy_hash)

    def with_current(self, current: PolicyVersion) -> PolicyRegistry:
        """Return the registry with another current version; all known policies stay known."""
        updated = PolicyRegistry.of(current)
        return replace(updated, by_hash={**self.by_hash, **updated.by_hash})

    def with_policy(self, policy: Policy) -> PolicyRegistry:
        """Return the registry with one more policy, such as the one that a trainer starts with."""
        return replace(self, by_hash={**self.by_hash, policy.hash: policy})
