"""Decisions, weights of soft policies and effects of token rules: golden vectors, bad input, and under torch."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core import golden
from tests.core.examples import as_torch, batch, filled_with, golden_columns, of_log_ratios, with_columns, with_kl
from trmon_client.core import statistics
from trmon_client.core.column_schema import N_BINS
from trmon_client.core.columns import EDGES, Columns, histograms
from trmon_client.core.policies import token_decision
from trmon_client.core.policies.criteria import Criterion, TokenRule
from trmon_client.core.policies.decision import Decision, decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.presets import PRESETS, TOKEN_POLICIES
from trmon_client.core.policies.sequence_statistics import STATISTICS, PolicyError
from trmon_client.core.policies.token_whatif import TokenFraction, affected_fractions, fraction_outside, kept_range

STATISTICS_OF_LOG_PROBS = [name for name, statistic in STATISTICS.items() if not statistic.needs]

NOT_GOLDEN = {"trm_auto", "gspo", "seq_mis_two_sided", "close_versions"}
"""Presets that other tests hold to their definition: test_token_decision.py."""

ONE_TOKEN = of_log_ratios([0.0])
Q, P = math.exp(-4.0), math.exp(-4.5)
BINARY_KL = Q * math.log(Q / P) + (1 - Q) * math.log((1 - Q) / (1 - P))
"""The binary KL of a token whose log-prob is -4 under mu and -4.5 under pi."""


@pytest.mark.parametrize("case", golden.cases())
def test_every_preset_decides_as_the_golden_file_states(case: str) -> None:
    columns, expected = golden_columns(case), dict(golden.load(case)["decisions"])
    expected["seq_mis_mask"] = expected["seq_mis"]
    assert PRESETS.keys() - expected.keys() == NOT_GOLDEN
    for name, stated in expected.items():
        decision = decide(columns, preset(name))
        assert decision.accepted.tolist() == stated["accepted"], name
        assert decision.reasons == stated["reasons"], name
        assert {criterion.resolve(columns) for criterion in preset(name).criteria} == {stated["pair"]}, name


@pytest.mark.parametrize("case", golden.cases())
def test_numpy_and_torch_decisions_are_identical_to_the_bit_under_every_preset_and_statistic(case: str) -> None:
    columns = golden_columns(case)
    tensors = as_torch(columns)
    bounds = [one_criterion(name, upper=0.01) for name in STATISTICS_OF_LOG_PROBS]
    for policy in (*map(preset, PRESETS), *bounds):
        assert_same_decision(decide(columns, policy), decide(tensors, policy), message=policy.name)


@pytest.mark.parametrize("name", PRESETS)
def test_deciding_does_not_read_from_the_device(name: str) -> None:
    decision = decide(as_torch(golden_columns("plain-op"), device="meta"), preset(name))
    assert decision.accepted.shape == decision.values.shape == decision.bounds.shape == (6,)


def test_a_rejection_states_its_reason_value_and_bound() -> None:
    decision = decide(of_log_ratios([0.0], [0.05], [-0.05]), preset("geo_mask"))
    assert decision.reasons == [None, "geo_ratio", "geo_ratio"]
    assert decision.values == pytest.approx([math.nan, math.exp(0.05), math.exp(-0.05)], nan_ok=True)
    assert decision.bounds == pytest.approx([math.nan, 1.01, 0.99], nan_ok=True)
    assert decision.codes.tolist() == [0, 4, 4]
    assert decision.counts() == {"accepted": 1, "geo_ratio": 2}


def test_bounds_are_inclusive() -> None:
    columns = of_log_ratios([0.5], [-0.5])
    assert decide(columns, one_criterion("max_abs_d", upper=0.5)).accepted.all()
    assert decide(columns, one_criterion("max_abs_d", lower=0.5)).accepted.all()
    assert not decide(columns, one_criterion("max_abs_d", upper=math.nextafter(0.5, 0))).accepted.any()


def test_a_ratio_that_underflows_is_reported_as_zero_under_a_strict_floating_point_state() -> None:
    decision = decide(of_log_ratios([-800.0]), preset("token_veto"))
    with np.errstate(all="raise"):
        assert decision.values.tolist() == [0.0]


def test_the_reason_is_invalid_then_empty_then_the_first_criterion_that_fails() -> None:
    policy = Policy("two", (Criterion("max_abs_d", upper=0.1), Criterion("mean_k1", upper=-1.0)))
    decision = decide(of_log_ratios([2.0, math.nan], [math.nan], [], [0.5], [0.05]), policy)
    assert decision.reasons == ["invalid_logprobs", "invalid_logprobs", "empty", "max_abs_d", "mean_k1"]


def test_the_mask_rate_excludes_empty_sequences_and_includes_all_invalid_ones() -> None:
    decision = decide(of_log_ratios([0.0], [math.nan], [], []), preset("geo_mask"))
    assert decision.mask_rate == 0.5
    nothing = decide(of_log_ratios([], []), preset("trm"))
    assert nothing.counts() == {"accepted": 0, "empty": 2}
    assert math.isnan(nothing.mask_rate)


@pytest.mark.parametrize("name", STATISTICS_OF_LOG_PROBS)
def test_nan_fails_closed(name: str) -> None:
    broken = filled_with(of_log_ratios([0.1], [0.1]), math.nan)
    for policy in (
        one_criterion(name, upper=1e30),
        one_criterion(name, lower=1e-30),
        one_criterion(name, lower=1e-30, upper=1e30),
    ):
        decision = decide(broken, policy)
        assert decision.reasons == [name, name]
        assert np.isnan(decision.values).all()
        assert not decision.certified.any()


def test_opsm_bounds_negative_advantages_only_and_rejects_nan_ones() -> None:
    columns = of_log_ratios([-1.0], [-1.0], [-1.0], [0.0], advantages=np.array([-1.0, 1.0, math.nan, -1.0]))
    assert decide(columns, preset("opsm")).reasons == ["mean_k1", None, "advantage", None]


class TestTrmMax:
    columns = of_log_ratios([0.0], [0.0], [2.0])

    def test_exact_kl_replaces_the_sampled_criteria_and_certifies(self) -> None:
        decision = decide(with_kl(self.columns, [0.05, 0.06, 0.01]), preset("trm_max"))
        # 0.05 rounds up in float32.
        assert decision.reasons == ["max_kl", "max_kl", None]
        assert decision.certified.tolist() == [True, True, False]
        assert decide(with_kl(self.columns, [math.inf] * 3), preset("trm_max")).certified.all()

    def test_a_lower_bound_rejects_above_the_margin_and_sampled_criteria_still_apply(self) -> None:
        columns = with_kl(self.columns, [0.05005, 0.06, 0.01], kl_is="lower_bound")
        decision = decide(columns, preset("trm_max"))
        assert decision.reasons == [None, "max_kl", "max_binary_kl"]
        assert decision.certified.tolist() == [False, True, True]

    def test_a_large_ratio_alone_does_not_certify_a_rejection(self) -> None:
        rollout, current = np.array([[-9.0]]), np.array([[-9.6]])
        mask = np.array([[True]])
        decision = decide(statistics.columns(rollout_logprobs=rollout, logprobs=current, mask=mask), preset("trm_max"))
        assert decision.reasons == ["max_abs_d"]
        assert not decision.certified.any()

    def test_the_kl_of_another_pair_is_ignored(self) -> None:
        columns = with_kl(self.columns, [9.0, 9.0, 9.0], kl_pair="mismatch")
        assert decide(columns, preset("trm_max")).reasons == [None, None, "max_binary_kl"]

    def test_trm_avg_reads_the_exact_mean_where_it_is_available(self) -> None:
        decision = decide(with_kl(self.columns, [0.0, 0.002, 0.0]), preset("trm_avg"))
        assert decision.reasons == [None, "mean_kl", None]


@pytest.mark.parametrize(
    ("columns", "policy", "argument"),
    [
        (ONE_TOKEN, Policy("p", (Criterion("version_lag", upper=2),)), "versions"),
        (ONE_TOKEN, Policy("p", (Criterion("max_kl", upper=0.1),)), "rollout_logits and logits"),
        (ONE_TOKEN, Policy("p", (Criterion("mean_k3", "mismatch", upper=0.1),)), "rollout_logprobs"),
        (ONE_TOKEN, preset("opsm"), "advantages"),
        (of_log_ratios([0.0], versions=[3]), Policy("p", (Criterion("version_lag", upper=2),)), "trainer_version"),
        (
            with_kl(ONE_TOKEN, [0.1], kl_pair="mismatch"),
            Policy("p", (Criterion("max_kl", upper=0.1),)),
            "total.*mismatch",
        ),
    ],
    ids=["versions", "logits", "rollout_logprobs", "advantages", "trainer_version", "the KL of another pair"],
)
def test_a_missing_input_raises_an_error_that_names_the_argument(
    columns: Columns, policy: Policy, argument: str
) -> None:
    with pytest.raises(PolicyError, match=argument):
        decide(columns, policy)


@pytest.mark.parametrize("name", [name for name in (*PRESETS, *TOKEN_POLICIES) if name != "close_versions"])
def test_without_a_pair_every_sequence_that_is_neither_empty_nor_invalid_is_accepted(name: str) -> None:
    logp = np.array([[-1.0, -1.0], [-1.0, np.nan], [-1.0, -1.0]])
    columns = statistics.columns(logprobs=logp, mask=np.array([[1, 1], [1, 1], [0, 0]]))
    decision = decide(columns, preset(name))
    assert decision.accepted.tolist() == [True, False, False]
    assert decision.reasons == [None, "invalid_logprobs", "empty"]
    assert decide(as_torch(columns, device="meta"), preset(name)).accepted.device.type == "meta"


def test_a_bound_on_the_version_lag_needs_no_log_probs() -> None:
    criteria = (Criterion("version_lag", upper=2.0), Criterion("mean_k3", upper=0.1))
    columns = statistics.columns(mask=np.ones((2, 3)), versions=np.array([3, 7]), trainer_version=8)
    assert decide(columns, Policy("fresh", criteria)).reasons == ["version_lag", None]


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [
        ("max_abs_d", 0.5),
        ("min_ratio", math.exp(-0.5)),
        ("max_ratio", math.exp(0.25)),
        ("mean_k1", 0.125),
        ("sum_k1", 0.25),
        ("mean_k2", 0.3125 / 4),
        ("sum_k2", 0.3125 / 2),
        ("max_k2", 0.125),
        ("sum_k3", math.exp(-0.5) + math.exp(0.25) - 1.75),
        ("mean_k3", (math.exp(-0.5) + math.exp(0.25) - 1.75) / 2),
        ("max_k3", math.exp(-0.5) - 0.5),
        ("geo_ratio", math.exp(-0.125)),
        ("seq_ratio", math.exp(-0.25)),
        ("max_prob_diff", math.exp(-4) * (1 - math.exp(-0.5))),
        ("prefix_range", 0.5),
        ("max_kl", 0.3),
        ("mean_kl", 0.15),
        ("version_lag", 4.0),
        ("max_binary_kl", BINARY_KL),
    ],
)
def test_each_statistic_equals_its_definition(statistic: str, expected: float) -> None:
    columns = of_log_ratios([-0.5, 0.25], versions=[np.array([3, 6])], trainer_version=7)
    decision = decide(with_kl(columns, [0.3]), one_criterion(statistic, lower=1e9))
    assert decision.values[0] == pytest.approx(expected, rel=1e-6)


def one_criterion(statistic: str, *, lower: float | None = None, upper: float | None = None) -> Policy:
    return Policy("one", (Criterion(statistic, lower=lower, upper=upper),))


def assert_same_decision(host: Decision, device: Decision, *, message: str = "") -> None:
    assert device.codes.numpy().tobytes() == host.codes.tobytes(), message
    assert device.certified.tolist() == host.certified.tolist(), message
    for on_host, on_device in zip(host.compared, device.compared, strict=True):
        assert (on_host is None) == (on_device is None), message
        if on_host is not None:
            assert on_device.numpy().tobytes() == on_host.tobytes(), message
    assert device.counts() == host.counts(), message
    assert device.bounds.numpy().tobytes() == host.bounds.tobytes(), message


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


def counts_of(d: np.ndarray) -> np.ndarray:
    return histograms(d[None].astype(float), valid=np.ones(len(d), bool))[0]


@settings(max_examples=60)
@given(
    st.lists(st.floats(-40, 40), min_size=1, max_size=40),
    st.tuples(st.floats(-35, 35) | st.sampled_from(EDGES), st.floats(-35, 35) | st.sampled_from(EDGES)),
)
def test_the_fraction_outside_lies_between_its_limits(d: list[float], bounds: tuple[float, float]) -> None:
    lower, upper = sorted(map(float, bounds))
    found = fraction_outside(counts_of(np.array(d)), lower=lower, upper=upper)
    true = np.mean((np.array(d) < lower) | (np.array(d) > upper))
    assert found.at_least - 1e-12 <= true <= found.at_most + 1e-12
    assert found.at_least - 1e-12 <= found.estimate <= found.at_most + 1e-12


@pytest.mark.parametrize("scale", [1e-4, 1.0])
def test_the_estimate_for_many_tokens_is_close(scale: float) -> None:
    d = np.random.default_rng(3).normal(0, scale, 50_000)
    for bound in (0.5 * scale, 3 * scale):
        found = fraction_outside(counts_of(d), lower=-bound, upper=bound).estimate
        assert found == pytest.approx(np.mean(np.abs(d) > bound), rel=0.02, abs=2e-3)


def test_bounds_on_edges_count_exactly_except_tokens_on_the_upper_edge() -> None:
    lower, upper = float(EDGES[20]), float(EDGES[-20])
    d = np.array([lower * 1.01, lower, 0.0, upper * 0.99, upper * 1.5])
    assert fraction_outside(counts_of(d), lower=lower) == TokenFraction(0.2, 0.2, 0.4)
    assert fraction_outside(counts_of(d), upper=upper) == TokenFraction(0.2, 0.2, 0.2)


def test_the_fraction_is_zero_without_bounds_and_nan_without_tokens() -> None:
    assert fraction_outside(counts_of(np.array([1.0, -2.0]))) == TokenFraction(0.0, 0.0, 0.0)
    assert math.isnan(fraction_outside(np.zeros(N_BINS, int)).estimate)
    with pytest.raises(ValueError, match=r"lower must be at most upper, got 1\.0 and 0\.0"):
        fraction_outside(np.ones(N_BINS, int), lower=1.0, upper=0.0)


@pytest.mark.parametrize("upper", [1e-12, 1e-6, 0.01, 1.0, 100.0, 1e6])
def test_the_ends_of_the_k3_range_have_the_k3_of_the_bound(upper: float) -> None:
    lower_d, upper_d = kept_range(TokenRule("token_k3", upper=upper))
    assert lower_d < 0 < upper_d
    for d in (lower_d, upper_d):
        exact = math.expm1(d) - d if abs(d) > 0.1 else math.fsum(d**n / math.factorial(n) for n in range(2, 15))
        assert exact == pytest.approx(upper, rel=1e-3 if upper < 1e-9 else 1e-6)


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (TokenRule("icepop", lower=0.5, upper=5.0), (math.log(0.5), math.log(5))),
        (TokenRule("token_k2", upper=0.02), (-0.2, 0.2)),
        (TokenRule("tis", upper=2.0), (-math.inf, math.log(2))),
    ],
)
def test_the_kept_range_of_a_rule_follows_from_its_bounds(rule: TokenRule, expected: tuple[float, float]) -> None:
    assert kept_range(rule) == pytest.approx(expected)
    with pytest.raises(ValueError, match="seq_tis has no range"):
        kept_range(TokenRule("seq_tis", upper=2.0))


@pytest.mark.parametrize("name", [name for name, rule in TOKEN_POLICIES.items() if not rule.kind.by_advantage])
@pytest.mark.parametrize("noise", [1e-3, 0.1, 1.0])
def test_the_estimate_contains_the_true_effect_of_the_policy(name: str, noise: float) -> None:
    inputs = batch(seed=5, n_sequences=40, noise=noise, odd=0.02)
    columns = statistics.columns(**inputs)
    applied = token_decision.apply_token_rules(preset(name), **inputs).columns
    true = (applied["n_token_masked"].sum() + applied["n_token_truncated"].sum()) / columns["n_tokens"].sum()
    (found,) = affected_fractions(columns, preset(name)).values()
    assert found.at_least - 1e-9 <= true <= found.at_most + 1e-9
    if name == "seq_tis":
        assert found.estimate == pytest.approx(true)


def test_a_missing_histogram_raises() -> None:
    columns = Columns(statistics.columns(**batch(0)).by_name)
    with pytest.raises(PolicyError, match="icepop needs the histogram of mismatch"):
        affected_fractions(columns, preset("icepop"))
    assert affected_fractions(columns, preset("trm")) == {}


@pytest.mark.parametrize("name", ["dppo", "dppo_kl"])
def test_a_rule_that_reads_what_is_not_stored_is_refused_with_the_reason(name: str) -> None:
    given = batch(0)
    columns = statistics.columns(**given, advantages=np.ones(len(given["mask"])))
    with pytest.raises(PolicyError, match=f"{name} reads the advantage and probability of each token, which are not"):
        affected_fractions(columns, preset(name))


def test_the_weights_of_gspo_are_not_truncated_and_two_sided_mis_masks_below_its_lower_bound() -> None:
    given = batch(seed=5, n_sequences=40, noise=0.3)
    columns = statistics.columns(**given, advantages=np.ones(40))
    assert affected_fractions(columns, preset("gspo")) == {"gspo": TokenFraction(0.0, 0.0, 0.0)}
    (found,) = affected_fractions(columns, preset("seq_mis_two_sided")).values()
    applied = token_decision.apply_token_rules(preset("seq_mis_two_sided"), **given).columns["n_token_masked"]
    assert found.estimate == pytest.approx(applied.sum() / columns["n_tokens"].sum())
    (one_sided,) = affected_fractions(columns, preset("seq_mis")).values()
    assert 0 < one_sided.estimate < found.estimate
