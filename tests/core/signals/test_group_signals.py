"""Rewards: missing and equal ones, groups that are solved by all or none, and the correlation with the length."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.core.example_columns import of_log_ratios
from trmon_client.core import statistics
from trmon_client.core.signals import batch_signals
from trmon_client.core.signals.group_signals import share_at_cap


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
