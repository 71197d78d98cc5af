"""Decisions on golden vectors, on bad and missing input, and under torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.core import golden
from tests.core.example_columns import as_torch, filled_with, golden_columns, of_log_ratios, with_kl
from trmon_client.core import statistics
from trmon_client.core.columns import Columns
from trmon_client.core.policies.criteria import Criterion
from trmon_client.core.policies.decision import Decision, decide
from trmon_client.core.policies.policy import Policy, preset
from trmon_client.core.policies.presets import PRESETS, TOKEN_POLICIES
from trmon_client.core.policies.sequence_statistics import STATISTICS, PolicyError

STATISTICS_OF_LOG_PROBS = [name for name, statistic in STATISTICS.items() if not statistic.needs]

NOT_GOLDEN = {"trm_auto", "gspo", "seq_mis_two_sided", "close_versions"}
"""Presets that other tests hold to their definition: test_rule_effects.py."""

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
