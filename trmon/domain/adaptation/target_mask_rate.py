"""The controller that keeps the mask rate of a policy at a target, independent of the scale of its statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trmon.domain.adaptation.adaptation_setting import DEFAULT_RATE, MIN_SEQUENCES, AdaptationSetting
from trmon.domain.adaptation.calibration_plan import CalibratedLimits
from trmon.domain.adaptation.proposal import (
    BoundMove,
    BoundProposal,
    ControllerResult,
    MoveLimit,
    NoChange,
    NoChangeReason,
    adapted_name,
)
from trmon.domain.adaptation.sample import PolicySample, policy_reads
from trmon.domain.adaptation.tail import BoundTail, bound_of, reaches_of, rejected_share, tails_of, with_reaches
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.presets import CERTIFICATE_MARGIN

NAME = "target_mask_rate"
MAX_FACTOR = 2.0
DEAD_BAND = 0.1
SHARE_HALVINGS = 17
"""Enough to resolve single sequences of the largest window."""


def propose(
    sample: PolicySample,
    *,
    policy: Policy,
    anchor: Policy,
    setting: AdaptationSetting,
    is_stalled: bool = False,
    calibrated: CalibratedLimits | None = None,
) -> ControllerResult:
    """Return the policy whose bounds reject `target_mask_rate` of a sample, or why the active bounds stay.

    Every bound rejects the same share of the tail of its statistic, so that all bounds together reject the target r:
    one bound alone is the (1 - r) quantile, a two-sided criterion rejects r/2 on each side. A bound moves by at most a
    factor of 2, and no bound moves while the mask rate is within 10% of the target.
    Args: sample: the statistics of `policy` over the newest sequences; anchor: the policy of floors and ceilings;
    calibrated: replaces these limits and the default target for a calibrated policy.
    Source: formulas, section 8.
    """
    if is_stalled:
        return NoChange(NoChangeReason.STALLED, "the run is stalled")
    if sample.has_nan:
        return NoChange(
            NoChangeReason.NOT_A_NUMBER, "some log-probs of the window are invalid, or a statistic of them is NaN"
        )
    if len(sample) < MIN_SEQUENCES:
        return NoChange(NoChangeReason.TOO_FEW, f"{len(sample)} sequences; at least {MIN_SEQUENCES} are needed")
    tails = tails_of(sample, policy)
    before, target = rejected_share(tails), _target(setting, calibrated)
    if abs(before - target) <= DEAD_BAND * target:
        return NoChange(NoChangeReason.IN_BAND, f"the mask rate is {before:.4f}, close to {target:g}")
    return _propose(tails, policy=policy, limits=_limits(policy, anchor, setting, calibrated), target=target)


def _target(setting: AdaptationSetting, calibrated: CalibratedLimits | None) -> float:
    """Return the target: the one that was set, else the rate of a calibrated policy, else the default."""
    if setting.target_mask_rate is not None:
        return setting.target_mask_rate
    return DEFAULT_RATE if calibrated is None else calibrated.rate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limits:
    """The policies whose bounds, times a factor, are floors and ceilings."""

    floors: Policy
    floor_factor: float
    ceilings: Policy
    ceiling_factor: float

    def of(self, tail: BoundTail) -> tuple[float, float]:
        """Return the floor and the ceiling of a reach; on a lower bound of KL, the floor keeps the certificate."""
        criterion = self.floors.criteria[tail.index]
        floor = reaches_of(criterion)[tail.side] * self.floor_factor
        ceiling = reaches_of(self.ceilings.criteria[tail.index])[tail.side] * self.ceiling_factor
        is_certified = criterion.statistic == "max_binary_kl" or criterion.where == "kl_lower_bound"
        return max(floor, CERTIFICATE_MARGIN) if is_certified else floor, ceiling


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
    limit: MoveLimit | None

    @property
    def moves(self) -> bool:
        return not math.isclose(self.reach, self.tail.reach, rel_tol=1e-3)


def _propose(tails: Sequence[BoundTail], *, policy: Policy, limits: _Limits, target: float) -> ControllerResult:
    movable = [tail for tail in tails if _has_scale(policy, tail)]
    if not movable:
        return NoChange(
            NoChangeReason.NOTHING_TO_MOVE, "no criterion with a bound other than zero applies to these sequences"
        )
    share = _share(movable, target=target)
    steps = [_step(tail, wanted=tail.quantile(share), limits=limits) for tail in movable]
    reaches = {(step.tail.index, step.tail.side): step.reach for step in steps if step.moves}
    if not reaches:
        return NoChange(NoChangeReason.AT_LIMIT, "every bound is at its floor or ceiling, or its statistic has no tail")
    return BoundProposal(
        controller=NAME,
        policy=with_reaches(policy, reaches, name=adapted_name(limits.floors)),
        moves=tuple(_move(policy, step) for step in steps if step.moves),
        n_sequences=len(tails[0].values),
        mask_rate_before=rejected_share(tails),
        mask_rate_after=rejected_share(tails, reaches=[reaches.get((t.index, t.side), t.reach) for t in tails]),
        basis={"target_mask_rate": target, "tail_share": share, "quantile": 1.0 - share},
    )


def _has_scale(policy: Policy, tail: BoundTail) -> bool:
    """Return whether factors can move the bounds of a criterion: all reaches are above zero."""
    return all(reach > 0 for reach in reaches_of(policy.criteria[tail.index]).values())


def _share(tails: Sequence[BoundTail], *, target: float) -> float:
    """Return the largest share of each tail with which all bounds together reject at most the target."""
    low, high = 0.0, 1.0
    for _ in range(SHARE_HALVINGS):
        middle = (low + high) / 2
        rejected = rejected_share(tails, reaches=[tail.quantile(middle) for tail in tails])
        low, high = (middle, high) if rejected <= target else (low, middle)
    return low


def _step(tail: BoundTail, *, wanted: float, limits: _Limits) -> _BoundStep:
    """Return the step to the quantile, rounded to four digits, within the limits."""
    if wanted <= 0:
        # A statistic that is zero at this quantile has no tail that could set a scale.
        return _BoundStep(tail=tail, reach=tail.reach, wanted=wanted, limit=None)
    floor, ceiling = limits.of(tail)
    rounded = float(f"{wanted:.4g}")
    near = min(max(rounded, tail.reach / MAX_FACTOR), tail.reach * MAX_FACTOR)
    reach = min(max(near, floor), ceiling)
    limit = None if near == rounded else MoveLimit.FACTOR
    if reach != near:
        limit = MoveLimit.FLOOR if near < floor else MoveLimit.CEILING
    return _BoundStep(tail=tail, reach=reach, wanted=wanted, limit=limit)


def _move(policy: Policy, step: _BoundStep) -> BoundMove:
    criterion, side = policy.criteria[step.tail.index], step.tail.side
    return BoundMove(
        statistic=criterion.statistic,
        pair=criterion.pair,
        side=side,
        before=bound_of(criterion, side, reach=step.tail.reach),
        after=bound_of(criterion, side, reach=step.reach),
        wanted=bound_of(criterion, side, reach=step.wanted),
        limit=step.limit,
    )


def _same_bounds(anchor: Policy, policy: Policy) -> bool:
    """Return whether two policies bound the same statistics on the same sides."""
    sides = [set(reaches_of(criterion)) for criterion in policy.criteria]
    return (
        policy_reads(anchor) == policy_reads(policy)
        and [set(reaches_of(criterion)) for criterion in anchor.criteria] == sides
    )
