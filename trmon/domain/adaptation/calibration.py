"""Calibration: sets the bounds of a policy from a run's own early steps. Source: formulas, section 8."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from trmon.domain.adaptation.proposal import (
    CALIBRATED_SUFFIX,
    INFINITE,
    SIGNS,
    BoundPlace,
    PolicySample,
    Side,
    bound_of,
    reaches_of,
    with_bounds,
)
from trmon.domain.identity import BatchKey
from trmon.domain.policies import CALIBRATION_AUTHOR, PolicyVersion
from trmon_client.core.arrays import Array
from trmon_client.core.policies.policy import Policy

MARGIN = 2.0
"""A bound is this many times its quantile."""
STEP_TAIL = 5.0
"""The tail of a single step is this many times `rate`: with a few hundred sequences, its 99th percentile is noise."""
STEP_QUANTILE = 0.9
MAX_RAISE = 4.0
ILL_START = ("engine_mismatch", "moe_routing", "wrong_policy", "corrupt_logprobs", "variance_blowup")
"""The findings that explain a quantile above its ceiling: the run starts ill, and nothing is calibrated."""
NOT_SILENT = (*ILL_START, "stale_rollouts", "step_too_large", "reward_collapse", "reward_decline")
"""The findings that prevent the second calibration."""


class CalibrationOutcome(Enum):
    """The outcome of a calibration."""

    CALIBRATED = "calibrated"
    AT_CEILINGS = "at_ceilings"
    STARTS_ILL = "starts_ill"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedBound:
    """One bound in the units of its statistic, with the quantiles it comes from and its limits."""

    statistic: str
    pair: str
    side: Side
    before: float
    after: float
    q_pooled: float
    q_steps: float
    floor: float
    ceiling: float
    exceeds_ceiling: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationResult:
    """A calibrated policy, or the policy as it was, with the evidence."""

    outcome: CalibrationOutcome
    policy: Policy
    bounds: tuple[CalibratedBound, ...]
    n_sequences: int
    n_steps: int
    findings: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """The result in a sentence."""
        sample = f"{self.n_sequences} sequences of {self.n_steps} steps"
        exceeding = ", ".join(dict.fromkeys(_name(bound) for bound in self.bounds if bound.exceeds_ceiling))
        if self.outcome is CalibrationOutcome.STARTS_ILL:
            return (
                f"not calibrated: the run starts ill ({', '.join(self.findings)}) and {exceeding} "
                f"of {sample} is above its ceiling; set the policy again after the cause is fixed"
            )
        moved = [bound for bound in self.bounds if bound.after != bound.before]
        moves = ", ".join(f"{_name(bound)} {bound.before:.4g} to {bound.after:.4g}" for bound in moved)
        said = f"calibrated on {sample}: {moves or 'no bound moves'}"
        return f"{said}; bounds at their ceilings: {exceeding}" if exceeding else said


def calibrate(
    samples: Sequence[PolicySample], policy: Policy, *, findings: Collection[str]
) -> CalibrationResult | None:
    """Return the first calibration of a policy; None if its criteria have no sequence to measure.

    Args: samples: one per step, of sequences with a mismatch pair; findings: those that stand.
    Source: formulas, section 8.
    """
    bounds = _measure(samples, policy, before=policy)
    if not bounds:
        return None
    result = _result(samples, bounds, policy, name=f"{policy.name[:100]}{CALIBRATED_SUFFIX}")
    standing = tuple(name for name in ILL_START if name in findings)
    if result.outcome is not CalibrationOutcome.AT_CEILINGS or not standing:
        return result
    kept = tuple(replace(bound, after=bound.before) for bound in result.bounds)
    return replace(result, outcome=CalibrationOutcome.STARTS_ILL, policy=policy, bounds=kept, findings=standing)


def raise_bounds(samples: Sequence[PolicySample], policy: Policy, *, calibrated: Policy) -> CalibrationResult | None:
    """Return the second calibration, which raises bounds by at most a factor of 4; None if none rises.

    Args: samples: as for `calibrate`; policy: the policy with its ceilings and floors; calibrated: as it is now.
    """
    bounds = _measure(samples, policy, before=calibrated)
    if all(bound.after == bound.before for bound in bounds.values()):
        return None
    return _result(samples, bounds, calibrated, name=calibrated.name)


def _result(
    samples: Sequence[PolicySample], bounds: Mapping[BoundPlace, CalibratedBound], policy: Policy, *, name: str
) -> CalibrationResult:
    """Return the policy with the bounds that the samples give it, under a name."""
    exceeds = any(bound.exceeds_ceiling for bound in bounds.values())
    after = {place: bound.after for place, bound in bounds.items()}
    return CalibrationResult(
        outcome=CalibrationOutcome.AT_CEILINGS if exceeds else CalibrationOutcome.CALIBRATED,
        policy=with_bounds(replace(policy, calibrate=None), after, name=name),
        bounds=tuple(bounds.values()),
        n_sequences=sum(map(len, samples)),
        n_steps=len(samples),
    )


def _measure(
    samples: Sequence[PolicySample], policy: Policy, *, before: Policy
) -> Mapping[BoundPlace, CalibratedBound]:
    """Return the new bound of each criterion and side that the samples measure."""
    assert policy.calibrate is not None
    found: dict[BoundPlace, CalibratedBound] = {}
    for index, (criterion, limits) in enumerate(zip(policy.criteria, policy.calibrate.floor, strict=True)):
        if criterion.pair not in ("mismatch", "mismatch_or_primary"):
            continue
        floors = reaches_of(replace(criterion, lower=limits[0], upper=limits[1]))
        for side, ceiling in reaches_of(criterion).items():
            steps = [values for sample in samples if len(values := _values(sample, index, side))]
            if steps and 0 < floors[side] < ceiling:
                floor, old = floors[side], reaches_of(before.criteria[index])[side]
                q_pooled = float(np.quantile(np.concatenate(steps), 1.0 - policy.calibrate.rate))
                of_step = max(0.5, 1.0 - STEP_TAIL * policy.calibrate.rate)
                q_steps = float(np.quantile([np.quantile(values, of_step) for values in steps], STEP_QUANTILE))
                wanted = float(f"{MARGIN * max(q_pooled, q_steps):.4g}")
                after = max(floor, wanted) if before is policy else max(old, min(wanted, MAX_RAISE * old))
                units = {"floor": floor, "ceiling": ceiling, "before": old, "after": min(ceiling, after)}
                units |= {"q_pooled": q_pooled, "q_steps": q_steps}
                found[index, side] = CalibratedBound(
                    statistic=criterion.statistic,
                    pair=criterion.pair,
                    side=side,
                    exceeds_ceiling=max(q_pooled, q_steps) > ceiling,
                    **{name: bound_of(criterion, side, reach=value) for name, value in units.items()},
                )
    return found


def _values(sample: PolicySample, index: int, side: Side) -> Array:
    """Return the statistic of the sequences that the criterion applies to, so that looser means larger."""
    values = SIGNS[side] * sample.statistics[sample.applies[:, index], index]
    return np.clip(values[~np.isnan(values)], -INFINITE, INFINITE)


def _name(bound: CalibratedBound) -> str:
    return bound.statistic if bound.side == "upper" else f"{bound.statistic} lower"


class CalibrationPhase(Enum):
    """The first calibration of a policy, or the one at step 100, which only raises its bounds."""

    FIRST = "first"
    SECOND = "second"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationPlan:
    """A calibration that is due: of `asked`, the version that asks for it, in place of the `current` one."""

    phase: CalibrationPhase
    asked: PolicyVersion
    current: PolicyVersion


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedLimits:
    """What calibration sets for later changes: the calibrated bounds as floors, the ceilings, and the mask rate."""

    floors: Policy
    ceilings: Policy
    rate: float


def calibration_plan(versions: Sequence[PolicyVersion]) -> CalibrationPlan | None:
    """Return the calibration that is due; None if the policy asks for none, is pinned, or has been calibrated.

    Args: versions: all versions of a run, oldest first.
    """
    asked, made = _calibrations(versions)
    current = versions[-1]
    if asked.policy.calibrate is None or current.pinned:
        return None
    if not made:
        return CalibrationPlan(phase=CalibrationPhase.FIRST, asked=asked, current=current)
    is_open = current is made[-1] and len(made) == 1 and _is_calibrated(current)
    return CalibrationPlan(phase=CalibrationPhase.SECOND, asked=asked, current=current) if is_open else None


def calibrated_limits(versions: Sequence[PolicyVersion]) -> CalibratedLimits | None:
    """Return the limits that the newest calibration sets, of all versions, oldest first; None without one."""
    asked, made = _calibrations(versions)
    calibrated = [version for version in made if _is_calibrated(version)]
    if asked.policy.calibrate is None or not calibrated:
        return None
    return CalibratedLimits(floors=calibrated[-1].policy, ceilings=asked.policy, rate=asked.policy.calibrate.rate)


def version_of_calibration(
    result: CalibrationResult, plan: CalibrationPlan, *, steps: tuple[int, int], now: float
) -> PolicyVersion:
    """Return the version that records a calibration of a sample. Args: steps: its first and its last step."""
    evidence: dict[str, Any] = {
        "controller": "calibration",
        "phase": plan.phase.value,
        "replaces": plan.current.policy.hash,
        "policy": plan.asked.policy.spec(),
        "set_by": plan.asked.author,
        "first_step": steps[0],
        "last_step": steps[1],
        "outcome": result.outcome.value,
        "n_sequences": result.n_sequences,
        "n_steps": result.n_steps,
        "findings": list(result.findings),
        "bounds": [asdict(bound) for bound in result.bounds],
    }
    return plan.current.followed_by(
        result.policy, author=CALIBRATION_AUTHOR, reason=result.reason, now=now, evidence=evidence
    )


def _calibrations(versions: Sequence[PolicyVersion]) -> tuple[PolicyVersion, list[PolicyVersion]]:
    """Return the newest version that no controller made, and the calibrations since."""
    place = max(index for index, version in enumerate(versions) if not version.is_adapted)
    made = [version for version in versions[place + 1 :] if version.author == CALIBRATION_AUTHOR]
    return versions[place], made


def _is_calibrated(version: PolicyVersion) -> bool:
    return version.evidence.get("outcome") != CalibrationOutcome.STARTS_ILL.value


SAMPLE_STEPS = 20
SETTLED_STEPS = 5
"""How many steps the learning rate must not have risen for: warm-up is over."""
FIRST_STEP = 20
"""The first step of the sample where the trainer does not send `lr`, as an index."""
SECOND_STEP = 100
LR_NOISE = 1e-9


@dataclass(frozen=True, slots=True)
class CalibrationStep:
    """One step: the row with its sequences, how many of them have a mismatch pair, and the learning rate or NaN."""

    key: BatchKey
    n_sequences: int
    lr: float


def first_sample(steps: Sequence[CalibrationStep], *, sequences: int) -> Sequence[CalibrationStep] | None:
    """Return the steps of the first calibration: from the end of the warm-up until there are enough; None: not yet.

    Args: steps: the steps of the run whose rows are final, oldest first.
    """
    start = _start(steps)
    n = None if start is None else _enough(steps[start:], sequences=sequences)
    return None if start is None or n is None else steps[start : start + n]


def second_sample(steps: Sequence[CalibrationStep], *, sequences: int) -> Sequence[CalibrationStep] | None:
    """Return the newest final steps up to the 100th that are enough; None before it, or if they are too few."""
    n = None if len(steps) < SECOND_STEP else _enough(steps[SECOND_STEP - 1 :: -1], sequences=sequences)
    return None if n is None else steps[SECOND_STEP - n : SECOND_STEP]


def _enough(steps: Sequence[CalibrationStep], *, sequences: int) -> int | None:
    """Return how many of the first steps make a sample; None if there are too few."""
    found = 0
    for n, step in enumerate(steps, 1):
        found += step.n_sequences
        if n >= SAMPLE_STEPS and found >= sequences:
            return n
    return None


def _start(steps: Sequence[CalibrationStep]) -> int | None:
    """Return the index of the first step of the sample; None while the warm-up lasts."""
    if all(math.isnan(step.lr) for step in steps[:FIRST_STEP]):
        return FIRST_STEP if len(steps) > FIRST_STEP else None
    first = next(index for index, step in enumerate(steps) if not math.isnan(step.lr))
    highest, risen = steps[first].lr, first
    for index in range(first, len(steps)):
        if steps[index].lr > highest + LR_NOISE * abs(highest):
            highest, risen = steps[index].lr, index
        elif index - risen >= SETTLED_STEPS:
            return index
    return None
