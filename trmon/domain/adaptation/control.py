"""Control: what the mode of a run's adaptation makes of its controller, and how a proposal becomes a version."""

from __future__ import annotations

from collections.abc import Sequence

from trmon.domain.adaptation.adaptation_setting import AdaptationSetting
from trmon.domain.adaptation.proposal import BoundProposal, NoChange, NoChangeReason, Verdict
from trmon.domain.adaptation.sample import PolicySample
from trmon.domain.adaptation.target_mask_rate import propose
from trmon.domain.policies.policy_version import CONTROLLER_PREFIX, PolicyVersion
from trmon_client.core.policies.acceptance import Policy


def run_controller(
    setting: AdaptationSetting, sample: PolicySample | None, *, current: PolicyVersion, anchor: Policy, is_stalled: bool
) -> Verdict:
    """Return what the controller says of a run; a version that a person pinned stays.

    Args: sample: the newest sequences, None where none could be read; anchor: see `anchor_of`.
    """
    if current.pinned:
        return NoChange(NoChangeReason.PINNED, "the policy is pinned; put it again without `pinned` to let it move")
    if sample is None:
        return NoChange(NoChangeReason.TOO_FEW, "no stored sequence has what the policy reads")
    return propose(sample, policy=current.policy, anchor=anchor, setting=setting, is_stalled=is_stalled)


def anchor_of(versions: Sequence[PolicyVersion]) -> Policy:
    """Return the policy that floors and ceilings are of: the newest that no controller made.

    Args: versions: of a run, oldest first, beginning with the one that every run starts with.
    """
    return next(version.policy for version in reversed(versions) if not version.is_adapted)


def version_of_proposal(proposal: BoundProposal, *, current: PolicyVersion, now: float) -> PolicyVersion:
    """Return the version that puts a proposal in force, in the place of the current one and of no other."""
    return PolicyVersion(
        policy=proposal.policy,
        shadows=current.shadows,
        author=f"{CONTROLLER_PREFIX}{proposal.controller}",
        reason=proposal.reason,
        created_at=now,
        evidence={**proposal.evidence(), "replaces": current.policy.hash},
    )
