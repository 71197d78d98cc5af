"""The lag law: golden values, what stays unknown without the radii, and what is said of it."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest

from tests.domain.budget.test_pipeline_advice import judgement
from trmon.domain.budget.run_budget import (
    BudgetState,
    fitted_radii,
    lag_law,
    lag_sentences,
    mismatch_budget,
    policy_split,
    token_tv_state,
)

RADII = {"update_norm": 2.0, "r_batch": 0.01, "r_crit": 0.4}


def test_the_law_has_its_golden_values() -> None:
    law = lag_law(lag=4, horizon=1000, lr=1e-6, ess_seq=0.5, **RADII)
    assert (law.s_eta, law.t_eta, law.ess_ceiling) == pytest.approx((4e-6, 1e-3, 25.0))
    assert law.lr_scale == pytest.approx(min(0.01 / (4 * 2), 0.4 / (1000 * 2)))  # the horizon binds: 2e-4
    assert law.lag_scale == pytest.approx(0.01 / (1e-6 * 2))
    longer = lag_law(lag=400, horizon=1000, lr=1e-6, ess_seq=0.5, **RADII)
    assert longer.lr_scale == pytest.approx(0.01 / (400 * 2))  # the lag binds: 1.25e-5


@pytest.mark.parametrize("missing", RADII)
def test_without_a_radius_or_a_norm_there_is_no_scale(missing: str) -> None:
    law = lag_law(lag=4, horizon=1000, lr=1e-6, ess_seq=0.5, **{name: RADII[name] for name in RADII if name != missing})
    assert math.isnan(law.lr_scale)
    words = " ".join(lag_sentences(law))
    assert "S eta is 4e-06 and T eta is 0.001" in words
    assert "allows learning rates" not in words


def test_a_lag_of_zero_leaves_the_horizon() -> None:
    assert lag_law(lag=0, horizon=1000, lr=1e-6, ess_seq=1.0, **RADII).lr_scale == pytest.approx(2e-4)


def test_every_sentence_of_a_bound_says_that_it_is_a_conjecture() -> None:
    words = list(lag_sentences(lag_law(lag=40, horizon=1000, lr=1e-6, ess_seq=0.5, **RADII)))
    assert words == [
        "A lag of 40 allows learning rates well below 0.000125 (conjecture); this run has 1e-06.",
        "This learning rate allows lags well below 5e+03 versions (conjecture).",
        "The lag of 40 is above the conjectured ceiling of 50 ess_seq, 25.",
    ]


def test_a_lag_that_a_finding_says_harms_is_told_before_what_it_would_allow() -> None:
    law = lag_law(lag=4, horizon=1000, lr=1e-6, ess_seq=0.5, **RADII)
    first, *rest = lag_sentences(law, stale=judgement("stale_rollouts").findings[0])
    assert first == "This run's lag harms it: stale rollouts since step 30. Lower it before anything below."
    assert rest == list(lag_sentences(law))


def test_what_was_not_sent_is_named() -> None:
    law = lag_law(lag=math.nan, horizon=10, lr=math.nan, ess_seq=math.nan)
    assert [sentence.split(":")[0] for sentence in lag_sentences(law)] == [
        "The lag was not measured",
        "The ceiling of the lag, 50 ess_seq (conjecture), needs log-probs of two policies.",
    ]
    assert "scalar lr" in next(lag_sentences(lag_law(lag=1, horizon=10, lr=math.nan, ess_seq=1.0)))
    *_, ceiling = lag_sentences(lag_law(lag=math.nan, horizon=10, lr=1.0, ess_seq=0.1))
    assert ceiling.startswith("A lag pays up to")


def test_radii_are_options_of_the_configuration() -> None:
    assert fitted_radii({"lag_law": {"r_batch": "0.01", "r_crit": 0.4, "update_norm": 2}}) == RADII
    found = fitted_radii({"lag_law.r_batch": -1, "lag_law.r_crit": "none"})
    assert all(math.isnan(value) for value in found.values())


VALUES = (0.0, 0.5, 1.0, 2.0, 40.0)
"""Multiples of a limit of 1."""


def test_what_is_proved_is_true_of_every_small_batch() -> None:
    """Every multiset of 20 tokens with these TVs, by the interpolated percentile and by the 19th smallest value."""
    seen = set()
    for batch in combinations_with_replacement(VALUES, 20):
        state = token_tv_state(mean=sum(batch) / 20, largest=batch[-1], limit=1.0)
        seen.add(state)
        if state is BudgetState.WITHIN:
            assert max(batch[18], np.percentile(batch, 95)) <= 1.0
        if state is BudgetState.EXCEEDED:
            assert min(batch[18], np.percentile(batch, 95)) > 1.0
    assert seen == {BudgetState.WITHIN, BudgetState.EXCEEDED, BudgetState.UNDECIDED}


@pytest.mark.parametrize(
    ("mean", "largest", "state"),
    [
        (math.nan, math.nan, BudgetState.NOT_MEASURED),
        (math.nan, 1e-4, BudgetState.WITHIN),
        (math.nan, 1e-2, BudgetState.UNDECIDED),
        (5e-6, 0.9, BudgetState.WITHIN),
        (5.1e-6, 0.9, BudgetState.UNDECIDED),
        (0.06, 1.0, BudgetState.EXCEEDED),
        (0.06, math.nan, BudgetState.EXCEEDED),
    ],
)
def test_the_percentile_is_judged_as_far_as_it_is_proved(mean: float, largest: float, state: BudgetState) -> None:
    assert token_tv_state(mean=mean, largest=largest) is state


@pytest.mark.parametrize(
    ("signals", "states"),
    [
        ({}, ("not_measured", "not_measured", "not_measured")),
        ({"mismatch_chi2_seq_log1p": np.log1p(0.09), "router_flip_rate": 0.0009}, ("not_measured", "within", "within")),
        (
            {"mismatch_chi2_seq_log1p": 0.11, "router_flip_rate": 1e-3},
            ("not_measured", "exceeded", "exceeded"),
        ),
        ({"total_chi2_seq_log1p": np.log1p(0.11), "tv_max": 5e-5}, ("within", "exceeded", "not_measured")),
    ],
)
def test_each_limit_has_its_state(signals: dict[str, float], states: tuple[str, ...]) -> None:
    assert tuple(item.state for item in mismatch_budget(signals)) == states


def test_chi2_over_both_drifts_says_so() -> None:
    item = mismatch_budget({"total_chi2_seq_log1p": 0.2})[1]
    assert (item.signal, item.value) == ("total_chi2_seq", pytest.approx(math.expm1(0.2)))
    assert "both drifts" in item.note


SAMPLED = {"staleness_prob_diff_max": 0.1, "mismatch_prob_diff_max": 0.3, "staleness_tv_is": 0.01, "mismatch_tv": 0.02}


def test_the_split_has_bounds_means_and_exact_values() -> None:
    found = policy_split(SAMPLED | {"tv_max": 0.4, "tv_mean": 0.03}, is_replayed=True)
    assert (found.alpha_0, found.alpha_1, found.mismatch_share) == (0.1, 0.3, 0.3 / 0.4)
    assert (found.mean_staleness, found.mean_mismatch, found.exact_max, found.exact_mean) == (0.01, 0.02, 0.4, 0.03)
    assert found.is_replayed


def test_with_the_logits_of_all_three_the_split_is_exact_and_says_so() -> None:
    exact = {
        f"{gap}_exact_tv_{stem}": x for gap, x in (("staleness", 0.2), ("mismatch", 0.6)) for stem in ("max", "mean")
    }
    found = policy_split(SAMPLED | exact, is_replayed=False)
    assert (found.alpha_0, found.alpha_1, found.mean_staleness, found.mean_mismatch) == (0.2, 0.6, 0.2, 0.6)
    assert found.note.startswith("Exact at the sampled positions")


def test_where_the_mismatch_pair_holds_staleness_the_split_is_unknown_and_says_why() -> None:
    found = policy_split(SAMPLED | {"engine_lag": 1.0}, is_replayed=False)
    unknown = (found.alpha_0, found.alpha_1, found.mismatch_share, found.mean_staleness, found.mean_mismatch)
    assert all(math.isnan(value) for value in unknown)
    assert found.note.endswith("the mismatch pair holds staleness too.")
    assert not policy_split(SAMPLED | {"engine_lag": 0.0}, is_replayed=False).note


def test_what_was_not_sent_is_nan() -> None:
    found = policy_split({"mismatch_prob_diff_max": 0.3}, is_replayed=False)
    assert found.alpha_1 == 0.3
    assert all(math.isnan(value) for value in (found.alpha_0, found.mismatch_share, found.exact_max, found.exact_mean))
