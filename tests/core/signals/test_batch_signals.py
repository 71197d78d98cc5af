"""Signals and those of rewards: golden values, bad input, and cases that other libraries get wrong."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.core import golden
from tests.core.examples import as_torch, filled_with, golden_columns, of_log_ratios, with_columns, with_kl
from trmon_client.core import statistics
from trmon_client.core.column_schema import DIVERGENCE_STEMS, GAPS, REFERENCE_STEMS, REPETITION_STEMS, TOKEN_STEMS
from trmon_client.core.columns import Columns
from trmon_client.core.signals import batch_signals
from trmon_client.core.signals.batch_signals import SIGNALS
from trmon_client.core.signals.group_signals import share_at_cap

RELATIVE = 1e-6
"""The tolerance of extremes, which are float32; sums are far more accurate."""


@pytest.mark.parametrize("case", golden.cases())
def test_signals_of_columns_equal_the_golden_values(case: str) -> None:
    computed = batch_signals.compute(golden_columns(case))
    expected = golden.signals(case)
    assert {name: computed[name] for name in expected} == pytest.approx(expected, rel=RELATIVE, abs=1e-12, nan_ok=True)


def test_a_full_batch_has_exactly_the_signals_of_the_catalogue() -> None:
    columns = with_kl(_full_batch(), [0.1, 0.2])
    kl = columns["max_kl"]
    of_tokens = dict.fromkeys((*TOKEN_STEMS, *REFERENCE_STEMS, *REPETITION_STEMS), columns["n_tokens"])
    tvs = [stem for stem in DIVERGENCE_STEMS if "_tv" in stem]
    columns = with_columns(columns, {"max_reverse_kl": kl, **dict.fromkeys(tvs, kl), **of_tokens})
    assert set(batch_signals.compute(columns)) == set(SIGNALS)


def test_the_exact_variation_of_each_gap_is_its_largest_and_its_mean() -> None:
    columns = of_log_ratios([0.1, 0.2], [0.3])
    sums, largest = np.array([0.6, 0.1]), np.array([0.4, 0.1])
    given = {f"sum_tv_{gap}": sums for gap in GAPS} | {f"max_tv_{gap}": largest for gap in GAPS}
    computed = batch_signals.compute(with_columns(columns, given))
    for gap in GAPS:
        assert computed[f"{gap}_exact_tv_max"] == pytest.approx(0.4)
        assert computed[f"{gap}_exact_tv_mean"] == pytest.approx(0.7 / 3)


def test_signals_of_inputs_not_given_are_absent() -> None:
    computed = batch_signals.compute(of_log_ratios([0.1, 0.2]))
    absent = ("mismatch_kl_k1", "reward_mean", "version_lag_mean", "clip_fraction", "kl_max", "ppl_old")
    assert not [name for name in absent if name in computed]


def test_signals_of_tensors_equal_those_of_arrays() -> None:
    columns = _full_batch()
    computed = batch_signals.compute(columns)
    assert batch_signals.compute(as_torch(columns)) == pytest.approx(computed, rel=0, abs=0, nan_ok=True)
    assert {type(value) for value in computed.values()} == {float}


@pytest.mark.parametrize("rows", [[], [[]], [[], []]], ids=["no sequence", "an empty one", "two empty ones"])
def test_a_batch_without_a_valid_token_gives_nan_everywhere(rows: list[list[float]]) -> None:
    n = len(rows)
    columns = of_log_ratios(*rows, rewards=np.ones(n), group_ids=np.zeros(n, np.int64)) if n else _without_rows()
    computed = batch_signals.compute(columns)
    assert "total_kl_k3" in computed
    assert all(math.isnan(value) for value in computed.values())


def test_a_batch_of_invalid_tokens_only_counts_them() -> None:
    computed = batch_signals.compute(of_log_ratios([math.nan, math.inf], [math.nan]))
    assert computed["invalid_fraction"] == 1.0
    assert (computed["n_positive"], computed["positive_fraction"]) == (1.0, pytest.approx(1 / 3))
    assert math.isnan(computed["response_length_mean"])


def test_empty_and_all_invalid_sequences_are_outside_every_mean() -> None:
    alone = batch_signals.compute(of_log_ratios([0.1, -0.2], rewards=np.array([1.0])))
    padded = batch_signals.compute(of_log_ratios([0.1, -0.2], [], [math.nan], rewards=np.array([1.0, 7.0, 9.0])))
    assert padded.pop("invalid_fraction") == pytest.approx(1 / 3)
    alone.pop("invalid_fraction")
    assert padded == pytest.approx(alone, nan_ok=True)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_columns_do_not_raise_or_warn(bad: float) -> None:
    computed = batch_signals.compute(filled_with(_full_batch(), bad))
    assert set(computed) <= set(SIGNALS)


def test_a_single_token_has_no_variance_and_no_correlation() -> None:
    computed = batch_signals.compute(of_log_ratios([0.3]))
    assert computed["total_is_weight_std"] == 0.0
    assert computed["total_ess_token"] == 1.0
    assert math.isnan(computed["total_prob_pearson"])


def test_equal_policies_have_divergences_of_exactly_zero() -> None:
    computed = batch_signals.compute(of_log_ratios([0.0] * 5, [0.0] * 3))
    zeros = ("kl_k1", "kl_k2", "kl_k3", "chi2_token", "chi2_token_sn", "chi2_seq", "tv", "prob_diff_max")
    ones = ("ratio_mean", "ess_token", "ess_seq", "ppl_ratio", "geo_ratio_mean", "is_weight_max")
    assert {name: computed[f"total_{name}"] for name in zeros} == dict.fromkeys(zeros, 0.0)
    assert {name: computed[f"total_{name}"] for name in ones} == dict.fromkeys(ones, 1.0)


@pytest.mark.parametrize(
    ("ratio", "k1", "k3"),
    [(0.5, 0.693, 0.193), (1, 0, 0), (2, -0.693, 0.307), (10, -2.303, 6.697), (100, -4.605, 94.395)],
)
def test_k_estimators_have_their_golden_values(ratio: float, k1: float, k3: float) -> None:
    d = math.log(ratio)
    rollout, current = np.array([[-6.0]]), np.array([[-6.0 + d]])
    computed = batch_signals.compute(
        statistics.columns(rollout_logprobs=rollout, logprobs=current, mask=np.array([[True]]))
    )
    assert computed["total_kl_k1"] == pytest.approx(k1, abs=5e-4)
    assert computed["total_kl_k2"] == pytest.approx(d * d / 2)
    assert computed["total_kl_k3"] == pytest.approx(k3, abs=5e-4)


def test_sequence_weights_of_long_responses_do_not_overflow() -> None:
    computed = batch_signals.compute(of_log_ratios([3.0] * 500, [-3.0] * 500))
    assert computed["total_chi2_seq_log1p"] == pytest.approx(3000 - math.log(2))
    assert computed["total_chi2_seq"] == 1e12
    assert computed["total_ess_seq"] == 0.5


def _full_batch() -> Columns:
    rng = np.random.default_rng(1)
    old = np.log(rng.uniform(0.1, 0.9, (2, 4)))
    return statistics.columns(
        rollout_logprobs=old + rng.normal(0, 0.01, old.shape),
        old_logprobs=old,
        logprobs=old + rng.normal(0, 0.05, old.shape),
        mask=np.ones(old.shape, bool),
        advantages=np.array([1.0, -1.0]),
        rewards=np.array([1.0, 0.0]),
        group_ids=np.array([3, 3]),
        versions=np.array([4, 5]),
        finish_reasons=["stop", "length"],
        trainer_version=6,
    )


def _without_rows() -> Columns:
    columns = of_log_ratios([0.1])
    return replace(columns, by_name={name: array[:0] for name, array in columns.items()}, histograms={})


def signals_of(
    rewards: list[float], *, groups: list[int] | None = None, lengths: list[int] | None = None
) -> dict[str, float]:
    lengths = lengths or [1] * len(rewards)
    labels = {} if groups is None else {"group_ids": np.array(groups)}
    return batch_signals.compute(of_log_ratios(*([0.1] * n for n in lengths), rewards=np.array(rewards), **labels))


@pytest.mark.parametrize("worse", [0.0, -1.0])
def test_of_two_rewards_the_higher_one_is_solved(worse: float) -> None:
    found = signals_of([1, 1, worse, worse, 1, worse, 1, 1], groups=[1, 1, 2, 2, 3, 3, 4, 4])
    assert (found["all_solved_groups"], found["none_solved_groups"], found["zero_variance_groups"]) == (0.5, 0.25, 0.75)


@pytest.mark.parametrize("rewards", [[1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0.5, 1.0]], ids=["one", "one of zero", "three"])
def test_solved_groups_are_unknown_unless_rewards_take_exactly_two_values(rewards: list[float]) -> None:
    found = signals_of(rewards, groups=[1, 1, 2, 2])
    assert math.isnan(found["all_solved_groups"])
    assert math.isnan(found["none_solved_groups"])
    assert found["zero_variance_groups"] >= 0.5


def test_rewards_that_differ_by_rounding_are_equal() -> None:
    found = signals_of([0.1 + 0.2, 0.3, 1e6, 1e6 + 1e-4], groups=[1, 1, 2, 2])
    assert found["zero_variance_groups"] == 1.0
    assert (found["all_solved_groups"], found["none_solved_groups"]) == (0.5, 0.5)


def test_the_effective_signal_is_the_mean_sample_variance_of_groups() -> None:
    found = signals_of([1, 0, 1, 1, 0, 0.5, 9.0], groups=[1, 1, 1, 2, 2, 2, 3])
    assert found["effective_signal"] == pytest.approx((np.var([1, 0, 1], ddof=1) + np.var([1, 0, 0.5], ddof=1)) / 2)


def test_groups_of_one_have_no_signal() -> None:
    found = signals_of([1, 0], groups=[1, 2])
    names = ("zero_variance_groups", "all_solved_groups", "none_solved_groups", "effective_signal")
    assert all(math.isnan(found[name]) for name in names)


def test_missing_rewards_are_left_out_of_quantiles_and_the_correlation() -> None:
    found = signals_of([1.0, math.nan, 2.0, 3.0], lengths=[1, 9, 2, 3])
    assert (found["reward_min"], found["reward_median"], found["reward_length_corr"]) == (1.0, 2.0, pytest.approx(1.0))
    grouped = signals_of([1.0, 1.0, math.nan], groups=[1, 1, 1])
    assert (grouped["reward_mean"], grouped["zero_variance_groups"]) == (1.0, 1.0)
    nothing = signals_of([math.nan, math.nan])
    assert nothing.pop("reward_invalid_share") == 1.0
    assert all(math.isnan(value) for name, value in nothing.items() if name.startswith("reward_"))


@pytest.mark.parametrize("name", ["reward", "advantage"])
def test_labels_that_are_not_finite_are_a_share_of_the_sequences_with_tokens(name: str) -> None:
    def found(*given: float, rows: tuple[list[float], ...] = ([0.1], [0.1], [0.1], [])) -> dict[str, float]:
        return batch_signals.compute(of_log_ratios(*rows, **{f"{name}s": np.array(given)}))

    mixed = found(math.nan, math.inf, 2.0, 9.0)
    assert (mixed[f"{name}_invalid_share"], mixed[f"{name}_max"]) == (pytest.approx(2 / 3), math.inf)
    missing = found(*[math.nan] * 4)
    assert (missing[f"{name}_invalid_share"], math.isnan(missing[f"{name}_max"])) == (1.0, True)
    assert math.isnan(found(1.0, 1.0, rows=([], []))[f"{name}_invalid_share"])


@pytest.mark.parametrize(
    ("rewards", "lengths"),
    [([1.0, 1.0], [1, 2]), ([0.3, 0.1 + 0.2], [1, 2]), ([1.0, 2.0], [3, 3]), ([1.0], [3])],
    ids=["equal rewards", "equal up to rounding", "equal lengths", "a single sequence"],
)
def test_a_constant_has_no_correlation(rewards: list[float], lengths: list[int]) -> None:
    assert math.isnan(signals_of(rewards, lengths=lengths)["reward_length_corr"])


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_lengths_that_a_limit_cuts_pile_up_at_it(share: float) -> None:
    lengths = np.random.default_rng(0).lognormal(6, 0.8, 512).astype(int)
    cap = int(np.quantile(lengths, 1 - share))
    assert share_at_cap(np.minimum(lengths, cap)) == pytest.approx(share, abs=0.02)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("n", [16, 512])
def test_the_longest_of_uncut_lengths_is_no_cap(seed: int, n: int) -> None:
    lengths = np.random.default_rng(seed).lognormal(6, 0.8, n).astype(int)
    assert share_at_cap(lengths) == 0.0


def test_invalid_tokens_count_towards_the_length_at_the_cap() -> None:
    columns = of_log_ratios([0.1] * 9, [0.1] * 8 + [math.nan], [0.1] * 2)
    assert batch_signals.compute(columns)["length_limit_share"] == pytest.approx(2 / 3)


REASONS = ["stop", "tool_calls", "eos", "length", "LENGTH", {"type": "abort"}, "abort", "error", "repetition", None]


def test_finish_reasons_are_shares_of_the_known_ones_also_of_responses_without_a_counted_token() -> None:
    rows = [[0.1]] * 6 + [[]] * 4
    found = batch_signals.compute(of_log_ratios(*rows, finish_reasons=REASONS))
    shares = (found["finish_stop_share"], found["length_limit_share"], found["finish_abort_share"])
    assert (*shares, found["finish_other_share"]) == pytest.approx((3 / 9, 2 / 9, 2 / 9, 2 / 9))


def test_a_response_whose_tokens_are_masked_as_it_was_cut_counts_as_cut() -> None:
    found = batch_signals.compute(of_log_ratios([0.1], [], [], [0.1], truncated=np.array([0, 1, 1, 0])))
    assert found["length_limit_share"] == 0.5
    both = of_log_ratios([0.1], [0.1], truncated=np.array([0, 1]), finish_reasons=["stop", "stop"])
    assert batch_signals.compute(both)["length_limit_share"] == 0.5
    unknown = batch_signals.compute(of_log_ratios([0.1], [0.1], finish_reasons=[None, None]))
    assert math.isnan(unknown["length_limit_share"])


def test_distinct_prompts_are_the_group_ids_of_sequences_with_tokens() -> None:
    found = batch_signals.compute(
        of_log_ratios([0.1], [0.1], [0.1], [], group_ids=np.array([2**60, 2**60 + 1, 2**60, 9]))
    )
    assert (found["distinct_prompts"], found["distinct_prompt_share"]) == (2.0, pytest.approx(2 / 3))


def test_entropy_and_ratio_by_the_sign_of_the_advantage_equal_those_of_the_sequences_alone() -> None:
    """A sequence without a sign belongs to neither, and a sign without a sequence is unknown."""
    rows = ([0.1, -0.3, 0.2], [0.5], [-0.2, 0.1], [0.3], [], [0.7])
    advantages = np.array([1.0, -2.0, 0.25, 0.0, -1.0, math.nan])
    found = batch_signals.compute(of_log_ratios(*rows, advantages=advantages))
    for sign, chosen in (("positive", [0, 2]), ("negative", [1, 4])):
        alone = batch_signals.compute(of_log_ratios(*(rows[i] for i in chosen)))
        assert found[f"sampled_entropy_{sign}"] == pytest.approx(alone["sampled_entropy"], rel=1e-12)
        assert found[f"ratio_mean_{sign}"] == pytest.approx(alone["total_ratio_mean"], rel=1e-12)
    gains = batch_signals.compute(of_log_ratios([0.1], advantages=np.array([1.0])))
    assert math.isnan(gains["sampled_entropy_negative"])
    assert math.isnan(gains["ratio_mean_negative"])


def test_the_ratio_by_sign_is_that_of_the_updates_where_they_are_known() -> None:
    random = np.random.default_rng(3)
    mu, old, new = (-random.exponential(1.0, (6, 9)) for _ in range(3))
    advantages = random.normal(size=(6, 9))
    columns = statistics.columns(
        rollout_logprobs=mu, old_logprobs=old, logprobs=new, mask=np.ones((6, 9)), advantages=advantages
    )
    found = batch_signals.compute(columns)
    for sign, rows in (("positive", advantages.mean(-1) > 0), ("negative", advantages.mean(-1) < 0)):
        assert found[f"ratio_mean_{sign}"] == pytest.approx(np.exp(new - old)[rows].mean())
        assert found[f"sampled_entropy_{sign}"] == pytest.approx(-mu[rows].mean())
