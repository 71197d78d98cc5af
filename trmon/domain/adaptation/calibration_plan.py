"""Which calibration of a run is due, derived from its policy versions alone, so that none is made twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from trmon.domain.adaptation.calibration import CalibrationOutcome, CalibrationResult
from trmon.domain.model.finding import Finding
from trmon.domain.policies.policy_version import CALIBRATION_AUTHOR, PolicyVersion
from trmon.domain.rules.rule import Rule
from trmon_client.core.policies.policy import Policy


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
    """Return the limits that the newest calibration sets; None without one.

    Args: versions: all versions of a run, oldest first.
    """
    asked, made = _calibrations(versions)
    calibrated = [version for version in made if _is_calibrated(version)]
    if asked.policy.calibrate is None or not calibrated:
        return None
    return CalibratedLimits(floors=calibrated[-1].policy, ceilings=asked.policy, rate=asked.policy.calibrate.rate)


def version_of_calibration(
    result: CalibrationResult, plan: CalibrationPlan, *, steps: tuple[int, int], now: float
) -> PolicyVersion:
    """Return the version that records a calibration, with its evidence.

    Args: steps: the first and the last step of the sample.
    """
    evidence: dict[str, Any] = {
        "controller": "calibration",
        "phase": plan.phase.value,
        "replaces": plan.current.policy.hash,
        "policy": plan.asked.policy.spec(),
        "set_by": plan.asked.author,
        "first_step": steps[0],
        "last_step": steps[1],
        **result.evidence(),
    }
    return PolicyVersion(
        policy=result.policy,
        shadows=plan.current.shadows,
        author=CALIBRATION_AUTHOR,
        reason=result.reason,
        created_at=now,
        evidence=evidence,
    )


def standing_findings(observed: Iterable[Finding], firing: Iterable[Rule | None]) -> frozenset[str]:
    """Return the letters of the findings of a diagnosis and of firing alerts; routing (M) is a mismatch of engines (A).

    Args: firing: the rules of firing alerts, None for a rule that was removed.
    """
    of_rules = (rule.finding for rule in firing if rule is not None and rule.finding is not None)
    letters = {finding.value for finding in (*observed, *of_rules)}
    return frozenset(letters | {Finding.ENGINE_MISMATCH.value} if Finding.MOE_ROUTING.value in letters else letters)


def _calibrations(versions: Sequence[PolicyVersion]) -> tuple[PolicyVersion, list[PolicyVersion]]:
    """Return the newest version that no controller made, and the calibrations since."""
    place = max(index for index, version in enumerate(versions) if not version.is_adapted)
    made = [version for version in versions[place + 1 :] if version.author == CALIBRATION_AUTHOR]
    return versions[place], made


def _is_calibrated(version: PolicyVersion) -> bool:
    return version.evidence.get("outcome") != CalibrationOutcome.STARTS_ILL.value
