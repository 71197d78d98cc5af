"""Control: runs the controller of a run, and turns its proposal into a policy version."""

from __future__ import annotations

from collections.abc import Sequence

from trmon.domain.adaptation.adaptation_setting import AdaptationSetting
from trmon.domain.adaptation.calibration_plan import CalibratedLimits
from trmon.domain.adaptation.proposal import BoundProposal, ControllerResult, NoChange, NoChangeReason
from trmon.domain.adaptation.sample import PolicySample
from trmon.domain.adaptation.target_mask_rate import propose
from trmon.domain.policies.policy_version import CONTROLLER_PREFIX, PolicyVersion
from trmon_client.core.policies.policy import Policy


def run_controller(
    setting: AdaptationSetting,
    sample: PolicySample | None,
    *,
    current: PolicyVersion,
    anchor: Policy,
    is_stalled: bool,
    calibrated: CalibratedLimits | None = None,
) -> ControllerResult:
    """Return the result of the controller for a run; a pinned version stays.

    Args: sample: the newest sequences, None if none could be read; anchor: see `anchor_of`; calibrated: see
    `calibrated_limits`.
    """
    if current.pinned:
        return NoChange(NoChangeReason.PINNED, "the policy is pinned; set it again without `pinned` to allow changes")
    if sample is None:
        return NoChange(NoChangeReason.TOO_FEW, "no stored sequence has the data that the policy needs")
    return propose(
        sample, policy=current.policy, anchor=anchor, setting=setting, is_stalled=is_stalled, calibrated=calibrated
    )


def anchor_of(versions: Sequence[PolicyVersion]) -> Policy:
    """Return the policy to which floors and ceilings refer: the newest one that no controller made.

    Args: versions: all versions of a run, oldest first.
    """
    return next(version.policy for version in reversed(versions) if not version.is_adapted)


def version_of_proposal(proposal: BoundProposal, *, current: PolicyVersion, now: float) -> PolicyVersion:
    """Return the version that applies a proposal, and names the version that it replaces."""
    return PolicyVersion(
        policy=proposal.policy,
        shadows=current.shadows,
        author=f"{CONTROLLER_PREFIX}{proposal.controller}",
        reason=proposal.reason,
        created_at=now,
        evidence={**proposal.evidence(), "replaces": current.policy.hash},
    )
