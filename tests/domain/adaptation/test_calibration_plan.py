"""Which calibration is due after which versions, and what a calibration means for later changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.domain.adaptation.test_calibration import AUTO, calibrated, samples
from trmon.domain.adaptation.calibration import (
    CalibrationPhase,
    CalibrationPlan,
    calibrated_limits,
    calibration_plan,
    standing_findings,
    version_of_calibration,
)
from trmon.domain.adaptation.proposal import AdaptationMode, AdaptationSetting, BoundProposal, PolicySample
from trmon.domain.adaptation.target_mask_rate import anchor_of, run_controller
from trmon.domain.finding import Finding
from trmon.domain.policies import PolicyVersion, default_version, version_from_trainer
from trmon.domain.rules.rule_yaml import builtin_rules
from trmon_client.core.policies.policy import Policy, preset

START = default_version(now=0.0)
BY_A_PERSON = PolicyVersion(policy=preset("geo_mask"), shadows=(), author="ann", reason="", created_at=1.0)


def made(*before: PolicyVersion, k3: float = 0.002, findings: tuple[str, ...] = ()) -> PolicyVersion:
    plan = calibration_plan(before)
    assert plan is not None
    return version_of_calibration(calibrated(samples(k3=k3), findings=findings), plan, steps=(20, 39), now=2.0)


def phase(*versions: PolicyVersion) -> CalibrationPhase | None:
    plan = calibration_plan(versions)
    return plan and plan.phase


FIRST = made(START)
SECOND = replace(FIRST, created_at=3.0)
ILL = made(START, k3=0.1, findings=("A",))
ADAPTED = replace(FIRST, author="trmon:target_mask_rate")


@pytest.mark.parametrize(
    ("versions", "due"),
    [
        pytest.param([START], CalibrationPhase.FIRST, id="a new run"),
        pytest.param([START, FIRST], CalibrationPhase.SECOND, id="calibrated once"),
        pytest.param([START, FIRST, SECOND], None, id="calibrated twice"),
        pytest.param([START, ILL], None, id="starts ill"),
        pytest.param([START, FIRST, ADAPTED], None, id="adapted since"),
        pytest.param([START, BY_A_PERSON], None, id="a person's fixed policy"),
        pytest.param([START, FIRST, replace(START, author="ann")], CalibrationPhase.FIRST, id="set again"),
        pytest.param([replace(START, pinned=True)], None, id="pinned"),
    ],
)
def test_versions_alone_tell_which_calibration_is_due(
    versions: list[PolicyVersion], due: CalibrationPhase | None
) -> None:
    assert phase(*versions) is due


def test_a_calibration_is_a_version_with_author_reason_and_evidence() -> None:
    assert (FIRST.author, FIRST.created_at, FIRST.shadows) == ("trmon:calibration", 2.0, START.shadows)
    assert FIRST.is_adapted
    assert FIRST.evidence["replaces"] == AUTO.hash
    assert (FIRST.evidence["first_step"], FIRST.evidence["last_step"], FIRST.evidence["phase"]) == (20, 39, "first")
    assert "calibrated on 2560 sequences of 20 steps" in FIRST.reason


def test_a_restart_keeps_the_calibration_and_another_policy_of_the_trainer_replaces_it() -> None:
    assert version_from_trainer(FIRST, AUTO, now=9.0) is None
    asked = version_from_trainer(FIRST, preset("geo_mask"), now=9.0)
    assert asked is not None
    assert asked.author == "trainer"


def test_a_calibration_of_a_persons_policy_is_kept_from_the_trainer() -> None:
    by_a_person = made(START, replace(START, author="ann"))
    assert version_from_trainer(by_a_person, preset("geo_mask"), now=9.0) is None


def test_alerts_and_observations_are_findings_by_their_letters() -> None:
    rules = {rule.name: rule for rule in builtin_rules()}
    firing = [rules["variance_blowup"], rules["reward_collapse"], rules["stalled"], None]
    assert standing_findings([Finding.MODERATE_DRIFT], firing) == {"C", "D", "R"}
    assert standing_findings([Finding.MOE_ROUTING], []) == {"A", "M"}


def proposal(sample: list[PolicySample], *, policy: Policy, setting: AdaptationSetting) -> BoundProposal:
    result = run_controller(
        setting,
        PolicySample.merge(sample),
        current=replace(FIRST, policy=policy),
        anchor=anchor_of([START, FIRST]),
        calibrated=calibrated_limits([START, FIRST]),
        is_stalled=False,
    )
    assert isinstance(result, BoundProposal)
    return result


def test_adaptation_of_a_calibrated_policy_has_its_rate_and_the_calibrated_bounds_as_floors() -> None:
    limits = calibrated_limits([START, FIRST])
    assert limits is not None
    assert (limits.floors, limits.ceilings, limits.rate) == (FIRST.policy, AUTO, 0.01)
    apply = AdaptationSetting(mode=AdaptationMode.APPLY)
    raised = proposal(samples(k3=0.006), policy=FIRST.policy, setting=apply)
    assert raised.basis["target_mask_rate"] == 0.01
    assert raised.policy.name == "trm_auto (adapted)"
    quiet = proposal(samples(k3=0.0001), policy=raised.policy, setting=apply)
    floor, lowered = FIRST.policy.criteria[-1].upper, quiet.policy.criteria[-1].upper
    assert floor is not None
    assert lowered is not None
    assert lowered >= floor
    high = proposal(samples(k3=0.1), policy=FIRST.policy, setting=AdaptationSetting(target_mask_rate=0.2))
    assert high.basis["target_mask_rate"] == 0.2
    assert high.policy.criteria[-1].upper == 0.02


def test_a_plan_is_of_the_version_that_asked() -> None:
    assert calibration_plan([START, FIRST]) == CalibrationPlan(
        phase=CalibrationPhase.SECOND, asked=START, current=FIRST
    )
