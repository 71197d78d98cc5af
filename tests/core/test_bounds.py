"""Error bounds against golden values and their laws; `tests/proof` checks the bounds themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core import golden
from tests.core.examples import as_torch, batch, of_log_ratios, with_columns, with_kl
from trmon_client.core import statistics
from trmon_client.core.bounds import (
    UNKNOWN,
    AlphaSplit,
    Improvement,
    alpha_split,
    batch_bounds,
    error_bounds,
    improvement,
    max_delta,
    minorizer,
    surrogate,
)
from trmon_client.core.columns import Columns
from trmon_client.core.divergence import exact
from trmon_client.core.divergence.divergence_columns import with_divergences
from trmon_client.core.signals import batch_signals

horizons = st.integers(1, 100_000)
kls = st.floats(1e-9, 10)


def test_bounds_equal_the_golden_values() -> None:
    for case in golden.load("bounds"):
        horizon, kl_seq = case["horizon"], case["kl_seq"]
        bounds = error_bounds(horizon=horizon, kl_max=case["kl_max"], kl_seq=kl_seq)
        for kind in ("trpo", "pinsker_marginal", "mixed", "adaptive"):
            assert getattr(bounds, kind) == pytest.approx(case[kind], rel=1e-12), (horizon, kind)
        assert bounds.vacuous is case["vacuous"], horizon
        delta = max_delta(horizon=horizon, budget=0.5, kl_seq=kl_seq)
        assert delta == pytest.approx(float(case["max_delta_for_budget_half"]), rel=1e-12), horizon


def test_zero_times_infinity_is_infinity() -> None:
    assert error_bounds(horizon=8, kl_max=0.0, kl_seq=math.inf).mixed == math.inf
    assert error_bounds(horizon=8, kl_max=math.inf, kl_seq=0.0).mixed == math.inf


def test_sampled_kl_asserts_nothing_and_lower_bounds_assert_only_vacuousness() -> None:
    large = {"horizon": 4096, "kl_max": 0.1, "kl_seq": 1.0}
    small = {"horizon": 2, "kl_max": 1e-6, "kl_seq": 1e-6}
    assert error_bounds(**large, kl_is="sampled").vacuous is None
    assert error_bounds(**large, kl_is="lower_bound").vacuous is True
    assert error_bounds(**small, kl_is="lower_bound").vacuous is None
    assert math.isnan(error_bounds(**large, kl_is="lower_bound").adaptive)
    unknown = error_bounds(horizon=8, kl_max=0.1, kl_seq=math.nan)
    assert math.isnan(unknown.adaptive)
    assert unknown.vacuous is None


def test_the_reward_range_scales_the_bounds_and_the_limit_of_vacuousness() -> None:
    unit, tenfold = (error_bounds(horizon=64, kl_max=0.001, kl_seq=0.01, reward_range=r) for r in (1.0, 10.0))
    assert tenfold.adaptive == pytest.approx(10 * unit.adaptive)
    assert tenfold.vacuous is unit.vacuous is False


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"horizon": 0}, "horizon must be 1"),
        ({"kl_max": -1.0}, "kl_max must be 0"),
        ({"kl_seq": -1.0}, "kl_seq must be 0"),
        ({"reward_range": 0.0}, "reward_range must be above 0"),
    ],
)
def test_arguments_out_of_range_are_rejected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        error_bounds(**{"horizon": 4, "kl_max": 0.1, "kl_seq": 0.1, **wrong})
    with pytest.raises(ValueError, match="budget"):
        max_delta(horizon=8, budget=math.nan)


def test_without_a_sequence_kl_max_delta_depends_on_the_horizon_only() -> None:
    assert max_delta(horizon=8, budget=-1.0, kl_seq=0.0) == max_delta(horizon=8, budget=0.0, kl_seq=0.0) == 0.0
    assert max_delta(horizon=4096, budget=0.5) == pytest.approx(3 * 0.5 / (4 * 4096**1.5))
    assert max_delta(horizon=4096, budget=0.5, kl_seq=math.inf) == max_delta(horizon=4096, budget=0.5)


@settings(max_examples=40)
@given(horizons, st.floats(1e-6, 10), kls)
def test_max_delta_uses_exactly_its_budget(horizon: int, budget: float, kl_seq: float) -> None:
    delta = max_delta(horizon=horizon, budget=budget, kl_seq=kl_seq)
    assert error_bounds(horizon=horizon, kl_max=delta, kl_seq=kl_seq).adaptive == pytest.approx(budget, rel=1e-9)


def test_a_batch_uses_its_longest_response_and_its_largest_kl() -> None:
    columns = with_kl(of_log_ratios([0.0] * 3, [0.0], []), [0.25, 0.5, 9.0])
    assert batch_bounds(columns) == error_bounds(horizon=3, kl_max=0.5, kl_seq=0.375)


def test_bounds_of_accepted_sequences_ignore_the_others_and_cap_the_kl_at_delta() -> None:
    columns = with_kl(of_log_ratios([0.0] * 3, [0.0]), [0.1, 0.3])
    accepted = np.array([False, True])
    expected = error_bounds(horizon=1, kl_max=0.05, kl_seq=0.3, reward_range=10.0)
    assert batch_bounds(columns, accepted=accepted, delta=0.05, reward_range=10.0) == expected
    tensors = as_torch(columns)
    assert batch_bounds(tensors, accepted=torch.from_numpy(accepted), delta=0.05, reward_range=10.0) == expected


def test_bounds_use_the_minimum_of_the_two_maxima_not_the_maximum_of_the_minima() -> None:
    columns = with_kl(of_log_ratios([0.0] * 3, [0.0]), [0.25, 0.0625])
    columns = with_columns(columns, {"max_reverse_kl": np.array([0.03125, 0.125], np.float32)})
    assert batch_bounds(columns) == error_bounds(horizon=3, kl_max=0.125, kl_seq=0.15625)


def test_a_batch_without_kl_or_without_a_sequence_has_unknown_bounds() -> None:
    columns = of_log_ratios([0.0])
    assert batch_bounds(columns) is UNKNOWN
    assert batch_bounds(with_kl(columns, [0.1]), accepted=np.array([False])) is UNKNOWN
    assert batch_bounds(with_kl(of_log_ratios([]), [0.0])) is UNKNOWN


def test_the_split_holds_the_largest_differences_of_probability() -> None:
    given = batch(seed=3, noise=0.3)
    columns = statistics.columns(**given)
    mu, old, new = (np.exp(given[name].astype(float)) for name in ("rollout_logprobs", "old_logprobs", "logprobs"))
    mismatch = np.abs(old - mu)[given["mask"]].max()
    staleness = np.abs(new - old)[given["mask"]].max()
    split = alpha_split(columns)
    assert (split.mismatch, split.staleness) == pytest.approx((mismatch, staleness), rel=1e-6)
    assert split.mismatch_share == pytest.approx(mismatch / (mismatch + staleness), rel=1e-6)
    computed = batch_signals.compute(columns)
    assert split == AlphaSplit.of_signals(computed)
    assert alpha_split(as_torch(columns)) == split


def test_exact_total_variations_take_the_place_of_differences_and_are_no_smaller() -> None:
    random = np.random.default_rng(2)
    mu = random.normal(size=(4, 5, 9))
    logits = {"rollout_logits": mu, "old_logits": mu + 0.1 * random.normal(size=mu.shape)}
    logits["logits"] = logits["old_logits"] + 0.3 * random.normal(size=mu.shape)
    ids, mask = random.integers(0, 9, (4, 5, 1)), np.ones((4, 5), bool)
    of_token = {
        name: np.take_along_axis(x - np.log(np.exp(x).sum(-1, keepdims=True)), ids, -1)[..., 0]
        for name, x in logits.items()
    }
    names = {"rollout_logits": "rollout_logprobs", "old_logits": "old_logprobs", "logits": "logprobs"}
    sampled = statistics.columns(**{names[name]: logp for name, logp in of_token.items()}, mask=mask)
    found = alpha_split(with_divergences(sampled, exact(**logits, mask=mask)))
    p = {name: np.exp(x) / np.exp(x).sum(-1, keepdims=True) for name, x in logits.items()}
    assert found.staleness == pytest.approx(np.abs(p["logits"] - p["old_logits"]).sum(-1).max() / 2, rel=1e-6)
    assert found.mismatch == pytest.approx(np.abs(p["old_logits"] - p["rollout_logits"]).sum(-1).max() / 2, rel=1e-6)
    coarse = alpha_split(sampled)
    assert (found.is_exact, coarse.is_exact) == (True, False)
    assert coarse.staleness <= found.staleness
    assert coarse.mismatch <= found.mismatch


@pytest.mark.parametrize(("old_version", "is_known"), [(3, True), (5, False), (None, False)])
def test_the_split_is_unknown_where_the_mismatch_pair_holds_staleness(
    old_version: int | None, *, is_known: bool
) -> None:
    given = batch(seed=3, n_sequences=4, noise=0.1)
    columns = statistics.columns(**given, versions=[3] * 4, trainer_version=5, old_version=old_version)
    found = alpha_split(columns)
    assert [math.isfinite(x) for x in (found.staleness, found.mismatch, found.mismatch_share)] == [is_known] * 3


def test_the_shares_are_nan_without_both_pairs_without_a_token_and_of_equal_policies() -> None:
    assert math.isnan(alpha_split(of_log_ratios([0.3])).mismatch_share)
    for value in (math.nan, -1.0):
        logp = np.full((1, 2), value)
        columns = statistics.columns(rollout_logprobs=logp, old_logprobs=logp, logprobs=logp, mask=np.ones((1, 2)))
        assert math.isnan(alpha_split(columns).mismatch_share)


def test_the_surrogate_is_the_mean_over_sequences_with_its_standard_error() -> None:
    given = batch(seed=1, n_sequences=7, noise=0.3)
    advantages = np.random.default_rng(1).normal(size=7)
    accepted = np.array([True, False, True, True, False, True, True])
    columns = statistics.columns(**given, advantages=advantages)
    found = surrogate(columns, accepted=accepted, centred=True)
    assert surrogate(as_torch(columns), accepted=torch.from_numpy(accepted), centred=True) == found
    terms = []
    for i, counts in enumerate(given["mask"]):
        d = [float(given["logprobs"][i][t]) - float(given["rollout_logprobs"][i][t]) for t in np.flatnonzero(counts)]
        terms.append(accepted[i] * advantages[i] * math.fsum(math.expm1(x) for x in d))
    mean = math.fsum(terms) / 7
    variance = math.fsum((term - mean) ** 2 for term in terms) / 7
    assert found.value == pytest.approx(mean, rel=1e-6)
    assert found.standard_error == pytest.approx(math.sqrt(variance / 7), rel=1e-6)
    assert found.n_sequences == 7


def test_the_mean_includes_rejected_sequences_and_excludes_padding_rows() -> None:
    alone = of_log_ratios([0.1], advantages=[1.0])
    padded = of_log_ratios([0.1], [], advantages=[1.0, math.nan])
    assert surrogate(padded, centred=True).value == surrogate(alone, centred=True).value
    invalid = of_log_ratios([0.1], [math.nan], advantages=[1.0, math.nan])
    found = surrogate(invalid, accepted=np.array([True, False]), centred=True)
    assert (found.value, found.n_sequences) == (surrogate(alone, centred=True).value / 2, 2)


@pytest.mark.parametrize(
    ("columns", "centred"),
    [
        (of_log_ratios([0.1], [0.2], advantages=[1.0, -1.0]), False),
        (of_log_ratios([0.1], [0.2]), True),
        (of_log_ratios([0.1], [0.2], advantages=[1.0, math.nan]), True),
        (of_log_ratios([], [], advantages=[1.0, -1.0]), True),
    ],
    ids=["not declared centred", "no advantages", "a NaN advantage", "no token"],
)
def test_the_surrogate_is_unknown(columns: Columns, centred: bool) -> None:
    found = surrogate(columns, centred=centred)
    assert math.isnan(found.value)
    assert math.isnan(found.standard_error)


def test_a_nan_advantage_of_a_rejected_sequence_is_ignored() -> None:
    columns = of_log_ratios([0.1], [0.2], advantages=[1.0, math.nan])
    found = surrogate(columns, accepted=np.array([True, False]), centred=True)
    assert found.value == pytest.approx(math.expm1(0.1) / 2)


def test_one_sequence_has_no_standard_error() -> None:
    found = surrogate(of_log_ratios([0.1], advantages=[1.0]), centred=True)
    assert found.value == pytest.approx(math.expm1(0.1))
    assert math.isnan(found.standard_error)


def test_extreme_advantages_do_not_raise_under_a_strict_floating_point_state() -> None:
    given = batch(seed=3, n_sequences=4)
    columns = statistics.columns(**given, advantages=[np.inf, 1e300, -1e300, 1e-300])
    with np.errstate(all="raise"):
        assert not math.isfinite(surrogate(columns, centred=True).value)


def test_the_minorizer_is_the_surrogate_minus_the_bound_of_the_accepted_sequences() -> None:
    columns, accepted = step(), np.array([True, False, True, True])
    found = minorizer(columns, accepted=accepted, centred=True, reward_range=2.0)
    bounds = batch_bounds(columns, accepted=accepted, reward_range=2.0)
    assert found.value == surrogate(columns, accepted=accepted, centred=True).value - bounds.adaptive
    assert found.vacuous is bounds.vacuous
    assert minorizer(columns, weights=accepted.astype(float), centred=True, reward_range=2.0) == found
    faint = minorizer(columns, weights=np.where(accepted, 1.0, 1e-12), centred=True)
    gain = surrogate(columns, accepted=accepted, centred=True).value
    assert faint.value == pytest.approx(gain - batch_bounds(columns).adaptive, abs=1e-9)


def test_the_minorizer_is_unknown_without_exact_kl_of_the_pair_or_a_declaration() -> None:
    for columns, centred in ((step(), False), (step(kl_is="sampled"), True), (step(kl_pair="mismatch"), True)):
        found = minorizer(columns, centred=centred)
        assert math.isnan(found.value)
    assert found.vacuous is None


def test_weights_of_a_soft_policy_scale_the_terms_and_leave_the_normaliser() -> None:
    columns = of_log_ratios([0.1], [0.2], [0.3], advantages=[1.0, -1.0, math.nan])
    found = surrogate(columns, weights=np.array([1.0, 0.25, 0.0]), centred=True)
    assert found.value == pytest.approx((math.expm1(0.1) - 0.25 * math.expm1(0.2)) / 3)
    accepted = np.array([True, False, False])
    hard = surrogate(columns, accepted=accepted, centred=True)
    assert surrogate(columns, weights=accepted.astype(float), centred=True) == hard


UP, DOWN = float(np.log(1.1)), float(np.log(0.9))
ALL = np.array([True] * 4)


def step(kl: float = 0.004, *, d: tuple[float, ...] = (UP, DOWN, UP, DOWN), **changed: Any) -> Columns:
    """Return four one-token sequences: good answers became 10% more likely, bad ones 10% less, so that L is 0.05."""
    columns = of_log_ratios(*([x] for x in d), advantages=[0.5, -0.5, 0.5, -0.5])
    return with_kl(columns, [kl] * 4, **changed)


def test_a_gain_above_two_standard_errors_and_the_bound_is_supported() -> None:
    columns = step()
    estimate = surrogate(columns, centred=True)
    assert estimate.value == pytest.approx(0.05)
    assert estimate.value - 2 * estimate.standard_error > batch_bounds(columns).adaptive
    assert improvement(columns, accepted=ALL, centred=True) is Improvement.SUPPORTED


REASONS: dict[str, tuple[Columns, dict[str, Any], Improvement]] = {
    "the bound is larger": (step(kl=0.05), {}, Improvement.WITHIN_ERROR),
    "the reward range scales the bound": (step(), {"reward_range": 20.0}, Improvement.WITHIN_ERROR),
    "the KL is a lower bound": (step(kl_is="lower_bound"), {}, Improvement.KL_NOT_EXACT),
    "the KL is sampled": (step(kl_is="sampled"), {}, Improvement.KL_NOT_EXACT),
    "the KL is of another pair": (step(kl_pair="mismatch"), {}, Improvement.KL_NOT_EXACT),
    "a sequence was rejected": (step(), {"accepted": np.array([True, True, True, False])}, Improvement.REJECTIONS),
    "advantages were not declared centred": (step(), {"centred": False}, Improvement.SURROGATE_UNKNOWN),
    "a KL is unbounded": (step(kl=np.inf), {}, Improvement.WITHIN_ERROR),
    "a KL is NaN": (step(kl=np.nan), {}, Improvement.BOUND_UNKNOWN),
    "the gain is noisy": (step(1e-6, d=(UP, UP, DOWN, DOWN)), {}, Improvement.WITHIN_ERROR),
}


@pytest.mark.parametrize(("columns", "changed", "expected"), REASONS.values(), ids=REASONS)
def test_an_unsupported_improvement_states_its_reason(
    columns: Columns, changed: dict[str, Any], expected: Improvement
) -> None:
    assert improvement(columns, **{"accepted": ALL, "centred": True, **changed}) is expected


def test_a_padding_row_does_not_count_as_a_rejection() -> None:
    columns = of_log_ratios([UP], [DOWN], [], advantages=[0.5, -0.5, 0.0])
    found = improvement(with_kl(columns, [0.004, 0.004, 0.0]), accepted=np.array([True, True, False]), centred=True)
    assert found is Improvement.SUPPORTED
