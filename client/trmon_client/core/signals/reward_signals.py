"""Computes signals of rewards over the sequences that have one."""

from __future__ import annotations

import math

import numpy as np

from trmon_client.core.columns.columns import Array
from trmon_client.core.columns.quantiles import quantile_of_sorted
from trmon_client.core.columns.sequence_matrix import SequenceMatrix

EQUAL_WITHIN = 1e-9
"""Rewards are equal up to this, relative to the largest magnitude where it is above 1."""

_QUANTILES = {"reward_min": 0.0, "reward_q01": 0.01, "reward_q05": 0.05, "reward_q25": 0.25, "reward_median": 0.5}


def reward_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the moments and quantiles of the rewards, and their correlation with the length; NaN rewards are left out.

    Source: formulas, sections 5 and 10.
    """
    if "reward" not in sequences.columns:
        return {}
    rewards, lengths = sequences.of_column("reward"), sequences.lengths
    ordered = np.sort(rewards)
    if math.isnan(ordered[-1]):  # NaN sorts last
        is_given = ~np.isnan(rewards)
        rewards, lengths = rewards[is_given], lengths[is_given]
        ordered = ordered[: len(rewards)]
    n = len(rewards)
    if not n:
        return dict.fromkeys(("reward_mean", "reward_std", *_QUANTILES, "reward_length_corr"), math.nan)
    mean = float(np.add.reduce(rewards)) / n
    deviations = rewards - mean
    sum_sq = float(deviations @ deviations)
    lowest, highest = ordered.item(0), ordered.item(-1)
    is_constant = highest - lowest <= rounding_of(lowest, highest)
    return {
        "reward_mean": mean,
        "reward_std": math.sqrt(sum_sq / n),
        **{name: quantile_of_sorted(ordered, fraction) for name, fraction in _QUANTILES.items()},
        "reward_length_corr": math.nan if is_constant else _correlation(deviations, sum_sq, lengths),
    }


def rounding_of(lowest: float, highest: float) -> float:
    """Return the largest difference between equal rewards, whose extremes are given."""
    return EQUAL_WITHIN * max(1.0, abs(lowest), abs(highest))


def _correlation(deviations: Array, sum_sq: float, lengths: Array) -> float:
    """Return Pearson's correlation of rewards and lengths; NaN if the lengths are constant.

    Args: deviations: of the rewards from their mean, [N]; sum_sq: the sum of their squares.
    """
    lengths = lengths - np.add.reduce(lengths) / len(lengths)
    product = sum_sq * float(lengths @ lengths)
    correlation = float(deviations @ lengths) / math.sqrt(product) if product else math.nan
    return min(max(correlation, -1.0), 1.0) if math.isfinite(correlation) else math.nan
