"""The controllers of bounds: one keeps a mask rate at its target, one recommends a bound from an error budget."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trmon.domain.adaptation.calibration import CalibratedLimits
from trmon.domain.adaptation.proposal import (
    DEFAULT_RATE,
    MIN_SEQUENCES,
    AdaptationSetting,
    BoundPlace,
    BoundProposal,
    BoundTail,
    ControllerResult,
    NoChange,
    NoChangeReason,
    PolicySample,
    adapted_name,
    bound_of,
    policy_reads,
    reaches_of,
    rejected_share,
    tails_of,
    with_reaches,
)
from trmon.domain.policies import CONTROLLER_PREFIX, PolicyVersion
from trmon_client.api.policies import MoveInfo
from trmon_client.core.bounds import max_delta
from trmon_client.core.policies.criteria import Criterion
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.presets import CERTIFICATE_MARGIN

TARGET_MASK_RATE = "target_mask_rate"
MAX_FACTOR = 2.0
DEAD_BAND = 0.1
SHARE_HALVINGS = 17
"""Enough to resolve single sequences of the largest window."""


def propose(
    sample: PolicySample | None,
    *,
    current: PolicyVersion,
    anchor: Policy,
    setting: AdaptationSetting,
    is_stalled: bool = False,
    calibrated: CalibratedLimits | None = None,
) -> ControllerResult:
    """Return the policy whose bounds reject `target_mask_rate` of a sample, or why the active bounds stay.

    Every bound rejects the same share of the tail of its statistic, so that all bounds together reject the target.
    Args: sample: the statistics of the current policy over the newest sequences, None if none could be read; anchor:
    the policy of floors and ceilings, see `anchor_of`; calibrated: replaces these limits and the default target for a
    calibrated policy, see `calibrated_limits`.
    Source: formulas, section 8.
    """
    if current.pinned:
        return NoChange(NoChangeReason.PINNED, "the policy is pinned; set it again without `pinned` to allow changes")
    if sample is None:
        return NoChange(NoChangeReason.TOO_FEW, "no stored sequence has the data that the policy needs")
    if is_stalled:
        return NoChange(NoChangeReason.STALLED, "the run is stalled")
    if (unusable := _unusable(sample)) is not None:
        return unusable
    policy = current.policy
    tails = tails_of(sample, policy)
    usual = DEFAULT_RATE if calibrated is None else calibrated.rate
    before, target = rejected_share(tails), usual if setting.target_mask_rate is None else setting.target_mask_rate
    if abs(before - target) <= DEAD_BAND * target:
        return NoChange(NoChangeReason.IN_BAND, f"the mask rate is {before:.4f}, close to {target:g}")
    return _propose(tails, policy=policy, limits=_limits(policy, anchor, setting, calibrated), target=target)


def _unusable(sample: PolicySample) -> NoChange | None:
    if sample.has_nan:
        return NoChange(
            NoChangeReason.NOT_A_NUMBER, "some log-probs of the window are invalid, or a statistic of them is NaN"
        )
    if len(sample) < MIN_SEQUENCES:
        return NoChange(NoChangeReason.TOO_FEW, f"{len(sample)} sequences; at least {MIN_SEQUENCES} are needed")
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """The policies whose bounds, times a factor, are floors and ceilings."""

    floors: Policy
    floor_factor: float
    ceilings: Policy
    ceiling_factor: float

    def of(self, tail: BoundTail) -> tuple[float, float]:
        """Return the floor and the ceiling of a reach; on a lower bound of KL, the floor keeps the certificate."""
        index, side = tail.place
        criterion = self.floors.criteria[index]
        floor = reaches_of(criterion)[side] * self.floor_factor
        ceiling = reaches_of(self.ceilings.criteria[index])[side] * self.ceiling_factor
        return max(floor, CERTIFICATE_MARGIN) if _is_lower_bound(criterion) else floor, ceiling


def _limits(policy: Policy, anchor: Policy, setting: AdaptationSetting, calibrated: CalibratedLimits | None) -> _Limits:
    if calibrated is not None and _same_bounds(calibrated.floors, policy):
        return _Limits(floors=calibrated.floors, floor_factor=1.0, ceilings=calibrated.ceilings, ceiling_factor=1.0)
    known = anchor if _same_bounds(anchor, policy) else policy
    return _Limits(
        floors=known, floor_factor=setting.floor_factor, ceilings=known, ceiling_factor=setting.ceiling_factor
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _BoundStep:
    """The new reach of one bound, the quantile that it should have, and the limit that kept it from there."""

    tail: BoundTail
    reach: float
    wanted: float
    limit: str | None


def _propose(tails: Sequence[BoundTail], *, policy: Policy, limits: _Limits, target: float) -> ControllerResult:
    reaches_by_criterion = [reaches_of(criterion).values() for criterion in policy.criteria]
    movable = [tail for tail in tails if min(reaches_by_criterion[tail.place[0]]) > 0]
    if not movable:
        return NoChange(
            NoChangeReason.NOTHING_TO_MOVE, "no criterion with a bound other than zero applies to these sequences"
        )
    # The largest share of each tail with which all bounds together reject at most the target.
    share, high = 0.0, 1.0
    for _ in range(SHARE_HALVINGS):
        middle = (share + high) / 2
        rejected = rejected_share(movable, reaches=[tail.quantile(middle) for tail in movable])
        share, high = (middle, high) if rejected <= target else (share, middle)
    steps = [_step(tail, wanted=tail.quantile(share), limits=limits) for tail in movable]
    steps = [step for step in steps if not math.isclose(step.reach, step.tail.reach, rel_tol=1e-3)]
    reaches = {step.tail.place: step.reach for step in steps}
    if not reaches:
        return NoChange(NoChangeReason.AT_LIMIT, "every bound is at its floor or ceiling, or its statistic has no tail")
    return BoundProposal(
        controller=TARGET_MASK_RATE,
        policy=with_reaches(policy, reaches, name=adapted_name(limits.floors)),
        moves=tuple(
            _move(policy, step.tail.place, reach=step.reach, wanted=step.wanted, limit=step.limit) for step in steps
        ),
        n_sequences=len(tails[0].values),
        mask_rate_before=rejected_share(tails),
        mask_rate_after=rejected_share(tails, reaches=[reaches.get(tail.place, tail.reach) for tail in tails]),
        basis={"target_mask_rate": target, "tail_share": share, "quantile": 1.0 - share},
    )


def _step(tail: BoundTail, *, wanted: float, limits: _Limits) -> _BoundStep:
    """Return the step to the quantile, rounded to four digits, within the limits."""
    if wanted <= 0:
        # A statistic that is zero at this quantile has no tail that could set a scale.
        return _BoundStep(tail=tail, reach=tail.reach, wanted=wanted, limit=None)
    floor, ceiling = limits.of(tail)
    rounded = float(f"{wanted:.4g}")
    near = min(max(rounded, tail.reach / MAX_FACTOR), tail.reach * MAX_FACTOR)
    reach = min(max(near, floor), ceiling)
    limit = None if near == rounded else "factor"
    if reach != near:
        limit = "floor" if near < floor else "ceiling"
    return _BoundStep(tail=tail, reach=reach, wanted=wanted, limit=limit)


def _move(policy: Policy, place: BoundPlace, *, reach: float, wanted: float, limit: str | None = None) -> MoveInfo:
    criterion, side = policy.criteria[place[0]], place[1]
    return MoveInfo.from_fields(
        statistic=criterion.statistic,
        pair=criterion.pair,
        side=side,
        before=bound_of(criterion, side, reach=reaches_of(criterion)[side]),
        after=bound_of(criterion, side, reach=reach),
        wanted=bound_of(criterion, side, reach=wanted),
        limit=limit,
    )


def _same_bounds(anchor: Policy, policy: Policy) -> bool:
    sides = [set(reaches_of(criterion)) for criterion in policy.criteria]
    return (
        policy_reads(anchor) == policy_reads(policy)
        and [set(reaches_of(criterion)) for criterion in anchor.criteria] == sides
    )


def anchor_of(versions: Sequence[PolicyVersion]) -> Policy:
    """Return the policy of floors and ceilings: the newest of versions, oldest first, that no controller made."""
    return next(version.policy for version in reversed(versions) if not version.is_adapted)


def version_of_proposal(proposal: BoundProposal, *, current: PolicyVersion, now: float) -> PolicyVersion:
    """Return the version that applies a proposal, and names the version that it replaces."""
    author = f"{CONTROLLER_PREFIX}{proposal.controller}"
    evidence = {**proposal.evidence(), "replaces": current.policy.hash}
    return current.followed_by(proposal.policy, author=author, reason=proposal.reason, now=now, evidence=evidence)


BOUND_BUDGET = "bound_budget"
BUDGET_FRACTION = 0.1
"""The fraction of the measured gain that the error bound may reach."""


def recommend(sample: PolicySample, *, policy: Policy, gain: float) -> ControllerResult:
    """Return the policy whose bound on token KL keeps the error bound within a fraction of the measured gain.

    Args: sample: the statistics of `policy` over the newest sequences; gain: reward gained so far, of a range of 1.
    Source: formulas, sections 7 and 8.
    """
    if (unusable := _unusable(sample)) is not None:
        return unusable
    if not gain > 0:
        return NoChange(
            NoChangeReason.NO_GAIN, f"the reward gained {gain:.4g}; the budget is a fraction of a positive gain"
        )
    horizon = int(sample.n_tokens.max())
    kl_seq = None if np.isnan(sample.kl_nats).any() else float(sample.kl_nats.mean())
    delta = max_delta(horizon=horizon, budget=BUDGET_FRACTION * gain, kl_seq=kl_seq)
    # On a lower bound of KL, the margin makes the certificate valid.
    reaches: dict[BoundPlace, float] = {
        (index, "upper"): delta + CERTIFICATE_MARGIN if _is_lower_bound(criterion) else delta
        for index, criterion in enumerate(policy.criteria)
        if criterion.statistic in ("max_kl", "max_binary_kl") and criterion.upper is not None
    }
    if not reaches or math.isinf(delta):
        return NoChange(
            NoChangeReason.NOTHING_TO_MOVE, "no criterion bounds the KL of tokens, or the sequences have no KL to bound"
        )
    proposed = with_reaches(policy, reaches, name=adapted_name(policy))
    return BoundProposal(
        controller=BOUND_BUDGET,
        policy=proposed,
        moves=tuple(_move(policy, place, reach=reach, wanted=reach) for place, reach in reaches.items()),
        n_sequences=len(sample),
        mask_rate_before=rejected_share(tails_of(sample, policy)),
        mask_rate_after=rejected_share(tails_of(sample, proposed)),
        basis={"gain": gain, "horizon": horizon, "delta": delta},
    )


def _is_lower_bound(criterion: Criterion) -> bool:
    return criterion.statistic == "max_binary_kl" or criterion.where == "kl_lower_bound"
