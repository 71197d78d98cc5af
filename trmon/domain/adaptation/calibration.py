"""Calibration: sets the bounds of a policy from a run's own early steps. Source: formulas, section 8."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from trmon.domain.adaptation.proposal import CALIBRATED_SUFFIX
from trmon.domain.adaptation.sample import PolicySample
from trmon.domain.adaptation.tail import INFINITE, SIGNS, Side, bound_of, reaches_of
from trmon_client.core.columns.columns import Array
from trmon_client.core.policies.calibration import Calibration
from trmon_client.core.policies.policy import Policy

MARGIN = 2.0
"""A bound is this many times its quantile."""
STEP_TAIL = 5.0
"""The tail of a single step is this many times `rate`: with a few hundred sequences, its 99th percentile is noise."""
STEP_QUANTILE = 0.9
MAX_RAISE = 4.0
"""The largest factor of the second calibration."""
ILL_START = ("A", "A'", "D")
"""The findings that explain a quantile above its ceiling: the run starts ill, and nothing is calibrated."""
NOT_SILENT = ("A", "B", "D", "G", "R")
"""The findings that prevent the second calibration."""


class CalibrationOutcome(Enum):
    """What a calibration did."""

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
        if self.outcome is CalibrationOutcome.STARTS_ILL:
            exceeding = ", ".join(_names(bound for bound in self.bounds if bound.exceeds_ceiling))
            return (
                f"not calibrated: the run starts ill (finding {', '.join(self.findings)}) and {exceeding} "
                f"of {sample} is above its ceiling; set the policy again after the cause is fixed"
            )
        moved = [bound for bound in self.bounds if bound.after != bound.before]
        moves = ", ".join(f"{_name(bound)} {bound.before:.4g} to {bound.after:.4g}" for bound in moved)
        said = f"calibrated on {sample}: {moves or 'no bound moves'}"
        at_ceiling = _names(bound for bound in self.bounds if bound.exceeds_ceiling)
        return f"{said}; bounds at their ceilings: {', '.join(at_ceiling)}" if at_ceiling else said

    def evidence(self) -> dict[str, Any]:
        """Return the evidence as a JSON-compatible document."""
        return {
            "outcome": self.outcome.value,
            "n_sequences": self.n_sequences,
            "n_steps": self.n_steps,
            "findings": list(self.findings),
            "bounds": [asdict(bound) for bound in self.bounds],
        }


def calibrate(
    samples: Sequence[PolicySample], policy: Policy, *, findings: Collection[str]
) -> CalibrationResult | None:
    """Return the first calibration of a policy; None if its criteria have no sequence to measure.

    Args: samples: one per step, of sequences with a mismatch pair; findings: the letters of those that stand.
    Source: formulas, section 8.
    """
    bounds = _measure(samples, policy, before=policy)
    if not bounds:
        return None
    standing = tuple(letter for letter in ILL_START if letter in findings)
    exceeds = any(bound.exceeds_ceiling for bound in bounds.values())
    outcome = CalibrationOutcome.AT_CEILINGS if exceeds else CalibrationOutcome.CALIBRATED
    calibrated = _with_bounds(policy, bounds, name=f"{policy.name[:100]}{CALIBRATED_SUFFIX}")
    if exceeds and standing:
        outcome, calibrated = CalibrationOutcome.STARTS_ILL, policy
        bounds = {place: replace(bound, after=bound.before) for place, bound in bounds.items()}
    return CalibrationResult(
        outcome=outcome,
        policy=calibrated,
        bounds=tuple(bounds.values()),
        n_sequences=sum(map(len, samples)),
        n_steps=len(samples),
        findings=standing if exceeds else (),
    )


def raise_bounds(samples: Sequence[PolicySample], policy: Policy, *, calibrated: Policy) -> CalibrationResult | None:
    """Return the second calibration, which raises bounds by at most a factor of 4; None if none rises.

    Args: samples: as for `calibrate`; policy: the policy with its ceilings and floors; calibrated: as it is now.
    """
    bounds = _measure(samples, policy, before=calibrated)
    if all(bound.after == bound.before for bound in bounds.values()):
        return None
    exceeds = any(bound.exceeds_ceiling for bound in bounds.values())
    return CalibrationResult(
        outcome=CalibrationOutcome.AT_CEILINGS if exceeds else CalibrationOutcome.CALIBRATED,
        policy=_with_bounds(calibrated, bounds, name=calibrated.name),
        bounds=tuple(bounds.values()),
        n_sequences=sum(map(len, samples)),
        n_steps=len(samples),
    )


def _measure(
    samples: Sequence[PolicySample], policy: Policy, *, before: Policy
) -> Mapping[tuple[int, Side], CalibratedBound]:
    """Return the new bound of each criterion and side that the samples measure."""
    assert policy.calibrate is not None
    found: dict[tuple[int, Side], CalibratedBound] = {}
    for index, (criterion, limits) in enumerate(zip(policy.criteria, policy.calibrate.floor, strict=True)):
        if criterion.pair not in ("mismatch", "mismatch_or_primary"):
            continue
        floors = reaches_of(replace(criterion, lower=limits[0], upper=limits[1]))
        for side, ceiling in reaches_of(criterion).items():
            steps = [values for sample in samples if len(values := _values(sample, index, side))]
            if steps and 0 < floors[side] < ceiling:
                reach = _Reach(floor=floors[side], ceiling=ceiling, before=reaches_of(before.criteria[index])[side])
                q_pooled, q_steps = _quantiles(steps, policy.calibrate)
                wanted = float(f"{MARGIN * max(q_pooled, q_steps):.4g}")
                after = reach.first(wanted) if before is policy else reach.raised(wanted)
                units = {**asdict(reach), "after": after, "q_pooled": q_pooled, "q_steps": q_steps}
                found[index, side] = CalibratedBound(
                    statistic=criterion.statistic,
                    pair=criterion.pair,
                    side=side,
                    exceeds_ceiling=max(q_pooled, q_steps) > ceiling,
                    **{name: bound_of(criterion, side, reach=value) for name, value in units.items()},
                )
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reach:
    """The limits of one bound as reaches, which grow as it loosens."""

    floor: float
    ceiling: float
    before: float

    def first(self, wanted: float) -> float:
        return min(self.ceiling, max(self.floor, wanted))

    def raised(self, wanted: float) -> float:
        return min(self.ceiling, max(self.before, min(wanted, MAX_RAISE * self.before)))


def _values(sample: PolicySample, index: int, side: Side) -> Array:
    """Return the statistic of the sequences that the criterion applies to, so that looser means larger."""
    values = SIGNS[side] * sample.statistics[sample.applies[:, index], index]
    return np.clip(values[~np.isnan(values)], -INFINITE, INFINITE)


def _quantiles(steps: Sequence[Array], calibration: Calibration) -> tuple[float, float]:
    """Return the pooled quantile, and the 90th percentile over steps of each step's own."""
    pooled = float(np.quantile(np.concatenate(steps), 1.0 - calibration.rate))
    of_step = max(0.5, 1.0 - STEP_TAIL * calibration.rate)
    return pooled, float(np.quantile([np.quantile(values, of_step) for values in steps], STEP_QUANTILE))


def _with_bounds(policy: Policy, bounds: Mapping[tuple[int, Side], CalibratedBound], *, name: str) -> Policy:
    """Return the plain policy with the new bounds."""
    criteria = list(policy.criteria)
    for (index, side), bound in bounds.items():
        after = bound.after
        criteria[index] = (
            replace(criteria[index], lower=after) if side == "lower" else replace(criteria[index], upper=after)
        )
    return replace(policy, name=name, criteria=tuple(criteria), calibrate=None)


def _name(bound: CalibratedBound) -> str:
    return bound.statistic if bound.side == "upper" else f"{bound.statistic} lower"


def _names(bounds: Any) -> list[str]:
    return list(dict.fromkeys(map(_name, bounds)))
