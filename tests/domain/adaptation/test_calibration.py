"""Calibrated bounds: the quantiles they come from, their floors and ceilings, and when there are none."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from tests.fixtures.messages import columns
from trmon.domain.adaptation.calibration import (
    CalibratedBound,
    CalibrationOutcome,
    CalibrationResult,
    calibrate,
    raise_bounds,
)
from trmon.domain.adaptation.proposal import PolicySample
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
    result = calibrate(found, AUTO, findings=findings)
    assert result is not None
    return result


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


@pytest.mark.parametrize("finding", ["A", "A'", "D"])
def test_a_run_that_starts_ill_is_not_calibrated_and_the_finding_is_named(finding: str) -> None:
    result = calibrated(samples(k3=0.1), findings=("C", finding))
    assert result.outcome is CalibrationOutcome.STARTS_ILL
    assert result.policy is AUTO
    assert f"finding {finding}" in result.reason
    assert "mean_k3" in result.reason


def test_quantiles_above_their_ceilings_without_a_finding_leave_the_bounds_there() -> None:
    result = calibrated(samples(k3=0.1), findings=("B", "C"))
    assert result.outcome is CalibrationOutcome.AT_CEILINGS
    assert bound(result).after == 0.02
    assert bound(result, "max_abs_d").after == 0.5
    assert result.reason.endswith("bounds at their ceilings: mean_k3")


def test_a_finding_alone_does_not_prevent_calibration() -> None:
    assert calibrated(samples(), findings=("A",)).outcome is CalibrationOutcome.CALIBRATED


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
    assert result is not None
    (criterion,) = result.policy.criteria
    assert criterion.lower == pytest.approx(0.99)
    assert criterion.upper == pytest.approx(math.exp(2 * np.quantile(drift, 0.99)), rel=0.02)


def test_the_second_calibration_only_raises_and_at_most_four_times() -> None:
    now = calibrated(samples(k3=0.001)).policy
    before = now.criteria[-1].upper
    assert before is not None
    assert raise_bounds(samples(k3=0.0001), AUTO, calibrated=now) is None
    twice = raise_bounds(samples(k3=0.0015), AUTO, calibrated=now)
    assert twice is not None
    assert bound(twice).after == pytest.approx(1.5 * before, rel=0.01)
    tight = replace(now, criteria=(*now.criteria[:-1], replace(now.criteria[-1], upper=0.0012)))
    far = raise_bounds(samples(k3=0.004), AUTO, calibrated=tight)
    assert far is not None
    assert bound(far).after == pytest.approx(0.0048)
    assert far.policy.name == now.name


def test_the_evidence_is_json() -> None:
    result = calibrated(samples())
    evidence = json.loads(json.dumps(result.evidence()))
    assert (evidence["outcome"], evidence["n_steps"], evidence["n_sequences"]) == ("calibrated", 20, 20 * N)
    assert {"q_pooled", "q_steps", "floor", "ceiling", "before", "after"} <= evidence["bounds"][0].keys()
