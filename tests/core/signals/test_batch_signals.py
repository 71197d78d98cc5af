"""Signals: golden values, bad input, and cases that other libraries get wrong."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from tests.core import golden
from tests.core.example_columns import (
    as_torch,
    filled_with,
    golden_columns,
    of_log_ratios,
    with_columns,
    with_kl,
)
from trmon_client.core import statistics
from trmon_client.core.column_schema import DIVERGENCE_STEMS, GAPS, REFERENCE_STEMS, REPETITION_STEMS, TOKEN_STEMS
from trmon_client.core.columns import Columns
from trmon_client.core.signals import batch_signals
from trmon_client.core.signals.batch_signals import SIGNALS

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
