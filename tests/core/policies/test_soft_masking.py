"""The weights of soft policies against an independent reference, their limits, and what has no weight."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.core.example_columns import as_torch, filled_with, golden_columns, of_log_ratios, with_columns
from trmon_client.core import statistics
from trmon_client.core.columns import Columns
from trmon_client.core.policies.criteria import Criterion
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.presets import PRESETS
from trmon_client.core.policies.sequence_statistics import PolicyError

TAUS = (0.1, 1.0, 3.0)
SOFT_PRESETS = [
    name for name, published in PRESETS.items() if published.weights is None and "versions" not in preset(name).needs
]


def weights(columns: Columns, *criteria: Criterion, tau: float) -> list[float]:
    return decide(columns, Policy("soft", criteria, soft_tau=tau)).soft_weights.tolist()


def excess(value: float, lower: float | None, upper: float | None) -> float:
    """Return the definition, side by side: the violation in multiples of the bound, infinite where the bound is 0."""
    beyond = [value - upper] if upper is not None and value > upper else []
    bounds = [upper] if beyond else []
    if lower is not None and value < lower:
        beyond, bounds = [lower - value], [lower]
    if not beyond:
        return 0.0
    return math.inf if bounds[0] == 0 else beyond[0] / abs(bounds[0])


@pytest.mark.parametrize("tau", TAUS)
def test_weights_equal_the_definition_over_enumerated_statistics_and_bounds(tau: float) -> None:
    values = [-3.0, -1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0, 3.0]
    columns = of_log_ratios(*([-value] for value in values))
    bounds = [None, -1.0, -0.5, 0.0, 0.5, 1.0]
    seen = set()
    for lower, upper in itertools.product(bounds, bounds):
        if (lower is None and upper is None) or (lower is not None and upper is not None and lower > upper):
            continue
        found = weights(columns, Criterion("sum_k1", "total", lower, upper), tau=tau)
        expected = [math.exp(-excess(value, lower, upper) / tau) for value in values]
        assert found == pytest.approx(expected, rel=1e-14, abs=0), (lower, upper)
        seen |= {round(one, 6) for one in found}
    assert {0.0, 1.0} < seen


@pytest.mark.parametrize("tau", TAUS)
def test_the_excess_of_a_ratio_is_of_its_log(tau: float) -> None:
    d = [-0.03, -0.01, 0.0, 0.005, 0.02, 0.04]
    found = weights(of_log_ratios(*([one, one] for one in d)), *preset("geo_mask").criteria, tau=tau)
    expected = [math.exp(-excess(one, math.log(0.99), math.log(1.01)) / tau) for one in d]
    assert found == pytest.approx(expected, rel=1e-6)
    assert found[2:4] == [1.0, 1.0]


def test_the_largest_excess_of_all_criteria_counts() -> None:
    both = (Criterion("max_abs_d", upper=0.5), Criterion("sum_k1", upper=0.1))
    columns = of_log_ratios([0.75], [-0.2], [-1.0], [0.1])
    assert weights(columns, *both, tau=2.0) == pytest.approx(
        [math.exp(-0.25), math.exp(-0.5), math.exp(-4.5), 1.0], rel=1e-6
    )
    assert weights(columns, *reversed(both), tau=2.0) == weights(columns, *both, tau=2.0)


def test_a_criterion_that_does_not_apply_has_no_excess() -> None:
    columns = of_log_ratios([1.0], advantages=[1.0])
    applies, other = Criterion("max_abs_d", upper=0.8), Criterion("max_kl", upper=0.1, where="kl_exact")
    assert weights(columns, applies, other, tau=1.0) == weights(columns, applies, tau=1.0)
    negative_only = Criterion("mean_k1", upper=0.1, where="advantage_negative")
    shared = {"advantages": [1.0, -1.0, math.nan]}
    found = weights(of_log_ratios([-1.1], [-1.1], [-0.0], **shared), negative_only, tau=10.0)
    assert found == pytest.approx([1.0, math.exp(-1.0), 0.0], rel=1e-6)


def test_an_unknown_advantage_has_no_weight_whatever_failed_first() -> None:
    both = (Criterion("max_abs_d", upper=0.5), Criterion("mean_k1", upper=0.1, where="advantage_negative"))
    columns = of_log_ratios([-1.0], [-0.6], advantages=[math.nan, 1.0])
    assert decide(columns, Policy("soft", both, soft_tau=9.0)).reasons == ["max_abs_d", "max_abs_d"]
    assert weights(columns, *both, tau=9.0) == pytest.approx([0.0, math.exp(-0.2 / 9)], rel=1e-6)


def test_invalid_empty_and_missing_statistics_have_no_weight() -> None:
    loose = Criterion("max_abs_d", upper=100.0)
    assert weights(of_log_ratios([0.1], [0.1, math.nan], []), loose, tau=1.0) == [1.0, 0.0, 0.0]
    broken = filled_with(of_log_ratios([0.1], [0.1]), math.nan)
    assert weights(broken, Criterion("mean_k3", upper=1.0), tau=1.0) == [0.0, 0.0]
    assert weights(broken, Criterion("mean_k3", lower=-1.0, upper=1.0), loose, tau=1.0) == [0.0, 0.0]
    infinite = with_columns(of_log_ratios([0.1], [0.1]), {"total_max_k3": np.array([np.inf, 1.0], np.float32)})
    assert weights(infinite, Criterion("max_k3", upper=2.0), tau=1e9) == [0.0, 1.0]


@pytest.mark.parametrize("name", SOFT_PRESETS)
@pytest.mark.parametrize("case", ["plain-op", "invalid-op"])
def test_the_bits_and_reasons_are_those_of_the_hard_policy_and_its_limit_as_tau_falls(case: str, name: str) -> None:
    columns, policy = golden_columns(case), preset(name)
    hard = decide(columns, policy)
    assert hard.soft_weights is None
    for tau in (1e-300, 1e-9, 0.5, 1e9):
        soft = decide(columns, replace(policy, soft_tau=tau))
        assert soft.codes.tolist() == hard.codes.tolist()
        assert ((soft.soft_weights >= 0) & (soft.soft_weights <= 1)).all()
        assert (soft.soft_weights[hard.accepted] == 1).all()
        if tau <= 1e-9:
            assert soft.soft_weights.tolist() == hard.accepted.astype(float).tolist()
        assert (soft.soft_weights[(hard.codes > 0) & (hard.codes < 4)] == 0).all()


@pytest.mark.parametrize("case", ["plain-op", "invalid-op"])
def test_tensors_have_the_weights_of_arrays_to_the_last_place(case: str) -> None:
    columns = golden_columns(case)
    for policy in (preset(name, soft_tau=0.7) for name in SOFT_PRESETS):
        expected, found = decide(columns, policy).soft_weights, decide(as_torch(columns), policy).soft_weights
        assert isinstance(found, torch.Tensor)
        np.testing.assert_array_max_ulp(expected, found.numpy(), maxulp=1)


def test_weights_are_computed_without_a_value_from_the_device() -> None:
    decision = decide(as_torch(golden_columns("plain-op"), device="meta"), preset("opsm", soft_tau=1.0))
    assert decision.soft_weights.shape == (6,)


def test_a_batch_without_a_pair_is_accepted_with_weight_1() -> None:
    only_rewards = statistics.columns(mask=np.array([[1, 1], [0, 0]]), rewards=[1.0, 0.0])
    assert weights(only_rewards, Criterion("max_abs_d", upper=0.1), tau=1.0) == [1.0, 0.0]


def test_a_soft_policy_has_a_spec_and_a_hash_of_its_own_and_hard_ones_keep_theirs() -> None:
    soft = preset("geo_mask", soft_tau=0.5)
    assert soft.name == "geo_mask(soft_tau=0.5)"
    assert Policy.parse(soft.spec()) == soft == Policy.parse({"name": "geo_mask", "soft_tau": 0.5})
    assert len({soft.hash, preset("geo_mask", soft_tau=0.6).hash, replace(soft, soft_tau=None).hash}) == 3
    assert "soft_tau" not in preset("geo_mask").spec()
    calibrated = Policy.parse({"name": "geo_mask", "calibrate": {}, "soft_tau": 2})
    assert (calibrated.soft_tau, calibrated.calibrate is not None) == (2.0, True)
    assert Policy.parse(calibrated.spec()) == calibrated


@pytest.mark.parametrize("tau", [0, -1.0, math.inf, math.nan, "1", True])
def test_a_tau_must_be_a_finite_number_above_0(tau: Any) -> None:
    with pytest.raises(PolicyError, match="soft_tau"):
        Policy.parse({"name": "geo_mask", "soft_tau": tau})


def test_soft_masking_needs_criteria_that_it_can_soften() -> None:
    for name in ("icepop", "seq_mis", "seq_mis_two_sided"):
        with pytest.raises(PolicyError, match="soft_tau needs criteria"):
            preset(name, soft_tau=1.0)
