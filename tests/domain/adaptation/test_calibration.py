"""Calibrated bounds: the quantiles they come from, their floors and ceilings, and when there are none."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.table_calibration import simulate
from tests.fixtures.messages import columns
from trmon.domain.adaptation.calibration import (
    CalibratedBound,
    CalibrationOutcome,
    CalibrationPhase,
    CalibrationPlan,
    CalibrationResult,
    CalibrationStep,
    calibrate,
    calibrated_limits,
    calibration_plan,
    first_sample,
    raise_bounds,
    second_sample,
    version_of_calibration,
)
from trmon.domain.adaptation.proposal import AdaptationMode, AdaptationSetting, BoundProposal, PolicySample
from trmon.domain.adaptation.target_mask_rate import anchor_of, propose
from trmon.domain.identity import BatchKey
from trmon.domain.policies import PolicyVersion, default_version, version_from_trainer
from trmon_client.core.policies.policy import Policy, preset

AUTO = preset("trm_auto")
TOKENS = 16
N = 128


def samples(*, k3: float = 0.002, steps: int = 20, policy: Policy = AUTO, **changed: object) -> list[PolicySample]:
    """Return steps whose mean_k3 is exponential of a mean; binary KL and |d| are a thousandth."""
    random = np.random.default_rng(0)
    return [
        PolicySample.of(columns(N, mismatch_sum_k3=TOKENS * random.exponential(k3, N), **changed), policy)
        for _ in range(steps)
    ]


def calibrated(found: list[PolicySample], *, findings: tuple[str, ...] = ()) -> CalibrationResult:
    return calibrate(found, AUTO, findings=findings)


def bound(result: CalibrationResult, statistic: str = "mean_k3") -> CalibratedBound:
    (found,) = (bound for bound in result.bounds if bound.statistic == statistic)
    return found


def test_a_bound_is_twice_the_larger_quantile() -> None:
    found = samples()
    values = [part.statistics[:, -1] for part in found]
    pooled = np.quantile(np.concatenate(values), 0.99)
    of_steps = np.quantile([np.quantile(step, 0.95) for step in values], 0.9)
    result = calibrated(found)
    mean_k3 = bound(result)
    assert (mean_k3.q_pooled, mean_k3.q_steps) == (pytest.approx(pooled), pytest.approx(of_steps))
    assert mean_k3.after == pytest.approx(2 * max(pooled, of_steps), rel=1e-3)
    assert (result.outcome, result.n_sequences, result.n_steps) == (CalibrationOutcome.CALIBRATED, 20 * N, 20)
    assert result.policy.criteria[-1].upper == mean_k3.after
    assert result.policy.name == "trm_auto (calibrated)"
    assert result.policy.calibrate is None


def test_a_step_far_above_the_others_counts_by_its_own_percentile() -> None:
    found = [*samples(steps=17), *samples(k3=0.0001, steps=1), *samples(k3=0.006, steps=3)]
    mean_k3 = bound(calibrated(found))
    assert mean_k3.q_steps > 0.9 * mean_k3.q_pooled


def test_no_bound_is_below_the_published_one_or_above_its_ceiling() -> None:
    assert bound(calibrated(samples(k3=1e-6))).after == 0.001
    assert bound(calibrated(samples(k3=0.004))).after == 0.02
    assert bound(calibrated(samples()), "max_abs_d").after == 0.5


def test_criteria_that_do_not_apply_keep_their_ceilings() -> None:
    result = calibrated(samples())
    assert {bound.statistic for bound in result.bounds} == {"max_binary_kl", "max_abs_d", "mean_k3"}
    assert [criterion.upper for criterion in result.policy.criteria if criterion.where == "kl_exact"] == [1.0, 0.02]


@pytest.mark.parametrize("finding", ["engine_mismatch", "corrupt_logprobs", "variance_blowup"])
def test_a_run_that_starts_ill_is_not_calibrated_and_the_finding_is_named(finding: str) -> None:
    result = calibrated(samples(k3=0.1), findings=("moderate_drift", finding))
    assert result.outcome is CalibrationOutcome.STARTS_ILL
    assert result.policy is AUTO
    assert f"({finding})" in result.reason
    assert "mean_k3" in result.reason


def test_quantiles_above_their_ceilings_without_a_finding_leave_the_bounds_there() -> None:
    result = calibrated(samples(k3=0.1), findings=("stale_rollouts", "moderate_drift"))
    assert result.outcome is CalibrationOutcome.AT_CEILINGS
    assert bound(result).after == 0.02
    assert bound(result, "max_abs_d").after == 0.5
    assert result.reason.endswith("bounds at their ceilings: mean_k3")


def test_a_finding_alone_does_not_prevent_calibration() -> None:
    assert calibrated(samples(), findings=("engine_mismatch",)).outcome is CalibrationOutcome.CALIBRATED


def test_a_nan_statistic_is_left_out() -> None:
    spoilt = samples(steps=1, mismatch_max_binary_kl=np.full(N, math.nan))
    result = calibrated([*samples(), *spoilt])
    assert bound(result, "max_binary_kl").after == pytest.approx(0.0501)


def test_without_a_mismatch_criterion_nothing_is_measured() -> None:
    spec = {"name": "total", "criteria": [{"statistic": "mean_k3", "pair": "total", "upper": 0.01}], "calibrate": {}}
    policy = Policy.parse(spec)
    assert calibrate(samples(policy=policy), policy, findings=()) is None


def test_both_sides_of_a_ratio_are_calibrated_by_their_own_tails() -> None:
    policy = Policy.parse({"name": "geo_mask", "calibrate": {"ceiling": 1.5}})
    drift = np.random.default_rng(0).normal(0.02, 0.01, N)
    found = samples(policy=policy, mismatch_sum_d=TOKENS * drift)
    result = calibrate(found, policy, findings=())
    (criterion,) = result.policy.criteria
    assert criterion.lower == pytest.approx(0.99)
    assert criterion.upper == pytest.approx(math.exp(2 * np.quantile(drift, 0.99)), rel=0.02)


def test_the_second_calibration_only_raises_and_at_most_four_times() -> None:
    now = calibrated(samples(k3=0.001)).policy
    before = now.criteria[-1].upper
    assert raise_bounds(samples(k3=0.0001), AUTO, calibrated=now) is None
    twice = raise_bounds(samples(k3=0.0015), AUTO, calibrated=now)
    assert bound(twice).after == pytest.approx(1.5 * before, rel=0.01)
    tight = replace(now, criteria=(*now.criteria[:-1], replace(now.criteria[-1], upper=0.0012)))
    far = raise_bounds(samples(k3=0.004), AUTO, calibrated=tight)
    assert bound(far).after == pytest.approx(0.0048)
    assert far.policy.name == now.name


START = default_version(now=0.0)
BY_A_PERSON = PolicyVersion(policy=preset("geo_mask"), shadows=(), author="ann", reason="", created_at=1.0)


def made(*before: PolicyVersion, k3: float = 0.002, findings: tuple[str, ...] = ()) -> PolicyVersion:
    plan = calibration_plan(before)
    return version_of_calibration(calibrated(samples(k3=k3), findings=findings), plan, steps=(20, 39), now=2.0)


def phase(*versions: PolicyVersion) -> CalibrationPhase | None:
    plan = calibration_plan(versions)
    return plan and plan.phase


FIRST = made(START)
SECOND = replace(FIRST, created_at=3.0)
ILL = made(START, k3=0.1, findings=("engine_mismatch",))
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
    evidence = json.loads(json.dumps(FIRST.evidence))
    told = {"replaces": AUTO.hash, "outcome": "calibrated", "phase": "first", "first_step": 20, "last_step": 39}
    assert {name: evidence[name] for name in told} == told
    assert {"q_pooled", "q_steps", "floor", "ceiling", "before", "after"} <= evidence["bounds"][0].keys()
    assert "calibrated on 2560 sequences of 20 steps" in FIRST.reason


def test_a_restart_keeps_the_calibration_and_another_policy_of_the_trainer_replaces_it() -> None:
    assert version_from_trainer(FIRST, AUTO, now=9.0) is None
    assert version_from_trainer(replace(ADAPTED, policy=preset("trm")), AUTO, now=9.0) is None
    asked = version_from_trainer(FIRST, preset("geo_mask"), now=9.0)
    assert asked.author == "trainer"


def test_a_calibration_of_a_persons_policy_is_kept_from_the_trainer() -> None:
    by_a_person = made(START, replace(START, author="ann"))
    assert version_from_trainer(by_a_person, preset("geo_mask"), now=9.0) is None


def proposal(sample: list[PolicySample], *, policy: Policy, setting: AdaptationSetting) -> BoundProposal:
    return propose(
        PolicySample.merge(sample),
        setting=setting,
        current=replace(FIRST, policy=policy),
        anchor=anchor_of([START, FIRST]),
        calibrated=calibrated_limits([START, FIRST]),
    )


def test_adaptation_of_a_calibrated_policy_has_its_rate_and_the_calibrated_bounds_as_floors() -> None:
    limits = calibrated_limits([START, FIRST])
    assert (limits.floors, limits.ceilings, limits.rate) == (FIRST.policy, AUTO, 0.01)
    apply = AdaptationSetting(mode=AdaptationMode.APPLY)
    raised = proposal(samples(k3=0.006), policy=FIRST.policy, setting=apply)
    assert raised.basis["target_mask_rate"] == 0.01
    assert raised.policy.name == "trm_auto (adapted)"
    quiet = proposal(samples(k3=0.0001), policy=raised.policy, setting=apply)
    floor, lowered = FIRST.policy.criteria[-1].upper, quiet.policy.criteria[-1].upper
    assert lowered >= floor
    high = proposal(samples(k3=0.1), policy=FIRST.policy, setting=AdaptationSetting(target_mask_rate=0.2))
    assert high.basis["target_mask_rate"] == 0.2
    assert high.policy.criteria[-1].upper == 0.02


def test_a_plan_is_of_the_version_that_asked() -> None:
    assert calibration_plan([START, FIRST]) == CalibrationPlan(
        phase=CalibrationPhase.SECOND, asked=START, current=FIRST
    )


WARM_UP = [min(step, 12) * 1e-7 for step in range(200)]
CONSTANT = [1e-6] * 200
DECAY = [1e-6 * 0.99**step for step in range(200)]
UNKNOWN = [math.nan] * 200


def steps(rates: Iterable[float], *, n_sequences: int = 256) -> list[CalibrationStep]:
    return [CalibrationStep(BatchKey(1, step, None), n_sequences, lr) for step, lr in enumerate(rates)]


def first(given: list[CalibrationStep], *, sequences: int = 2048) -> tuple[int, int] | None:
    """Return the sample's first and last step, which must not depend on how many steps followed."""
    found = first_sample(given, sequences=sequences)
    if found is None:
        return None
    place = found[0].key.step, found[-1].key.step
    assert first_sample(given[: place[1] + 1], sequences=sequences) == found
    assert first_sample(given[: place[1]], sequences=sequences) is None
    return place


@pytest.mark.parametrize(
    ("rates", "start"),
    [
        pytest.param(UNKNOWN, 20, id="lr is not sent"),
        pytest.param(CONSTANT, 5, id="lr is constant"),
        pytest.param(DECAY, 5, id="lr decays from the start"),
        pytest.param(WARM_UP, 17, id="lr rises for 12 steps"),
        pytest.param([1e-6, *UNKNOWN[1:]], 5, id="lr is sent once"),
        pytest.param([*UNKNOWN[:30], *WARM_UP[30:]], 20, id="lr comes after step 20"),
    ],
)
def test_the_sample_starts_when_the_learning_rate_has_stopped_rising_for_five_steps(
    rates: list[float], start: int
) -> None:
    assert first(steps(rates)) == (start, start + 19)


def test_a_learning_rate_that_still_rises_is_waited_for() -> None:
    assert first(steps([step * 1e-9 for step in range(200)])) is None


def test_small_steps_make_a_longer_sample() -> None:
    assert first(steps(UNKNOWN, n_sequences=32)) == (20, 20 + 63)
    assert first(steps(UNKNOWN, n_sequences=1)) is None


def test_the_second_sample_is_the_newest_before_step_100() -> None:
    for n in (100, 101, 150):
        found = second_sample(steps(UNKNOWN)[:n], sequences=2048)
        assert (found[0].key.step, found[-1].key.step) == (80, 99)
    assert second_sample(steps(UNKNOWN)[:99], sequences=2048) is None
    assert second_sample(steps(UNKNOWN, n_sequences=8), sequences=2048) is None


@pytest.mark.parametrize(
    ("k3", "lengths", "later"),
    [
        pytest.param(0.002, (64, 64), 4, id="usual, short"),
        pytest.param(0.0005, (64, 1024), 8, id="quiet, of all lengths", marks=pytest.mark.slow),
        pytest.param(0.005, (1024, 1024), 8, id="noisy, long", marks=pytest.mark.slow),
    ],
)
def test_healthy_runs_keep_their_sequences_and_ten_times_the_drift_is_cut(
    k3: float, lengths: tuple[int, int], later: int
) -> None:
    found = simulate(k3, lengths, later=later)
    assert found.trm_auto >= 0.97
    assert found.rejected_10x >= 0.89
    assert found.trm < 0.3 or k3 < 0.002, "fixed bounds reject most"
