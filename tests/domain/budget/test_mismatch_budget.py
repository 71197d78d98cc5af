"""The mismatch budget: its limits, and what mean and maximum prove of the 95th percentile of token TV."""

from __future__ import annotations

import math
from itertools import combinations_with_replacement

import numpy as np
import pytest

from trmon.domain.budget.run_budget import BudgetState, mismatch_budget, token_tv_state

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
    assert tuple(item.state.value for item in mismatch_budget(signals)) == states


def test_chi2_over_both_drifts_says_so() -> None:
    item = mismatch_budget({"total_chi2_seq_log1p": 0.2})[1]
    assert (item.signal, item.value) == ("total_chi2_seq", pytest.approx(math.expm1(0.2)))
    assert "both drifts" in item.note
