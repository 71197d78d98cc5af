"""Policies of runs: their versions, and the registry of policies that reports may name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trmon_client.core.policies.policy import Policy, preset, preset_names

DEFAULT_POLICY = "trm_auto"
DEFAULT_SHADOWS = ("trm_max", "geo_mask", "token_veto")
CONTROLLER_PREFIX = "trmon:"
"""The prefix of a controller's name as an author; token names cannot start with it."""
CALIBRATION_AUTHOR = f"{CONTROLLER_PREFIX}calibration"
"""The author of calibrations; their evidence has the `policy` that was calibrated and by whom it was `set_by`."""
TRAINER_AUTHOR = "trainer"
TRAINER_REASON = "requested by init(policy=)"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """One version of a run's policy, with JSON evidence if a controller made it; the newest one is current."""

    policy: Policy
    shadows: tuple[Policy, ...]
    author: str
    reason: str
    created_at: float
    from_step: int = 0
    pinned: bool = False
    evidence: Mapping[str, Any] = field(default_factory=dict)

    def followed_by(
        self, policy: Policy, *, author: str, reason: str, now: float, evidence: Mapping[str, Any] | None = None
    ) -> PolicyVersion:
        """Return the version that replaces this one; the shadows stay."""
        return PolicyVersion(
            policy=policy,
            shadows=self.shadows,
            author=author,
            reason=reason,
            created_at=now,
            evidence=evidence or {},
        )

    @property
    def is_adapted(self) -> bool:
        """Whether a controller is its author."""
        return self.author.startswith(CONTROLLER_PREFIX)

    @property
    def is_of_start(self) -> bool:
        """Whether a trainer requested it at its start; a token may have the trainer's name too."""
        return self.author == TRAINER_AUTHOR and self.reason == TRAINER_REASON

    @property
    def calibration(self) -> str | None:
        """One of uncalibrated, calibrated, at_ceilings and starts_ill; None for a policy with fixed bounds."""
        if self.author == CALIBRATION_AUTHOR:
            return str(self.evidence["outcome"])
        return None if self.policy.calibrate is None else "uncalibrated"


def default_version(*, now: float) -> PolicyVersion:
    """Return the first version of a new run: policy trm_auto, shadows trm_max, geo_mask and token_veto."""
    return PolicyVersion(
        policy=preset(DEFAULT_POLICY),
        shadows=tuple(preset(name) for name in DEFAULT_SHADOWS),
        author="trmon",
        reason="default for a new run",
        created_at=now,
    )


def version_from_trainer(current: PolicyVersion, policy: Policy, *, now: float) -> PolicyVersion | None:
    """Return the version that a start with a policy makes current, or None if nothing changes.

    The trainer replaces only trmon's default, versions of a trainer and calibrations of these: a version that a person
    set keeps its precedence, and replacing a controller's version would discard its adaptation at each restart.
    """
    calibrated = current.evidence if current.author == CALIBRATION_AUTHOR else {}
    author = calibrated.get("set_by", current.author)
    requested = policy.spec() == calibrated["policy"] if calibrated else policy == current.policy
    if author not in ("trmon", TRAINER_AUTHOR) or requested:
        return None
    return current.followed_by(policy, author=TRAINER_AUTHOR, reason=TRAINER_REASON, now=now)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRegistry:
    """The current policy of a run, and all policies that may have decided its reports."""

    current: PolicyVersion
    by_hash: Mapping[str, Policy] = field(default_factory=dict)

    @classmethod
    def of(cls, current: PolicyVersion, *, versions: Iterable[PolicyVersion] = ()) -> PolicyRegistry:
        """Return the registry of a run: all its policy versions, and the presets with their default bounds."""
        known = [*map(preset, preset_names())]
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
