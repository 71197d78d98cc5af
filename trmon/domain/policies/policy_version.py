"""Policies of a run: the one that decides, its shadows, and who changed them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trmon_client.core.policies.acceptance import Policy, preset

DEFAULT_POLICY = "trm"
DEFAULT_SHADOWS = ("trm_max", "geo_mask", "token_veto")
CONTROLLER_PREFIX = "trmon:"
"""Before a controller's name where it is the author; no token has such a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """One version of a run's policy: its author, the reason and when it came; the newest one is current.

    `evidence` is what a controller's version rests on, JSON-able; empty for a person's.
    """

    policy: Policy
    shadows: tuple[Policy, ...]
    author: str
    reason: str
    created_at: float
    from_step: int = 0
    pinned: bool = False
    evidence: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_adapted(self) -> bool:
        """Whether a controller made it."""
        return self.author.startswith(CONTROLLER_PREFIX)


def default_version(*, now: float) -> PolicyVersion:
    """Return what a new run starts with: policy trm, shadows trm_max, geo_mask and token_veto."""
    return PolicyVersion(
        policy=preset(DEFAULT_POLICY),
        shadows=tuple(preset(name) for name in DEFAULT_SHADOWS),
        author="trmon",
        reason="default for a new run",
        created_at=now,
    )


def asked_by_trainer(current: PolicyVersion, policy: Policy, *, now: float) -> PolicyVersion | None:
    """Return the version a trainer's start makes current, or None where nothing changes.

    A policy that a person set outlives the trainer's wish: only trmon's default and an earlier trainer yield.
    So does a controller's: a restart would undo what it learnt.
    """
    if current.author not in ("trmon", "trainer") or policy.hash == current.policy.hash:
        return None
    return PolicyVersion(
        policy=policy,
        shadows=current.shadows,
        author="trainer",
        reason="asked for by init(policy=)",
        created_at=now,
    )
