"""The three-policy split of a step's signals."""

from __future__ import annotations

import math

from trmon.domain.budget.run_budget import policy_split


def test_the_split_has_bounds_means_and_exact_values() -> None:
    found = policy_split(
        {
            "staleness_prob_diff_max": 0.1,
            "mismatch_prob_diff_max": 0.3,
            "staleness_tv_is": 0.01,
            "mismatch_tv": 0.02,
            "tv_max": 0.4,
            "tv_mean": 0.03,
        },
        is_replayed=True,
    )
    assert (found.alpha_0, found.alpha_1, found.mismatch_share) == (0.1, 0.3, 0.3 / 0.4)
    assert (found.mean_staleness, found.mean_mismatch, found.exact_max, found.exact_mean) == (0.01, 0.02, 0.4, 0.03)
    assert found.is_replayed


def test_what_was_not_sent_is_nan() -> None:
    found = policy_split({"mismatch_prob_diff_max": 0.3}, is_replayed=False)
    assert found.alpha_1 == 0.3
    assert all(math.isnan(value) for value in (found.alpha_0, found.mismatch_share, found.exact_max, found.exact_mean))
