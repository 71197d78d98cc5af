"""Computes signals of rewards over the sequences that have one."""

from __future__ import annotations

import math

import numpy as np

from trmon_client.core.columns.columns import Array
from trmon_client.core.columns.quantiles import percentiles
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
    rewards = sequences.of_column("reward")
    is_given = ~np.isnan(rewards)
    rewards = rewards[is_given]
    n = np.float64(len(rewards))
    mean = np.add.reduce(rewards) / n
    quantiles = percentiles(rewards, _QUANTILES.values()) if len(rewards) else [math.nan] * len(_QUANTILES)
    return {
        "reward_mean": float(mean),
        "reward_std": float(np.sqrt(np.add.reduce((rewards - mean) ** 2) / n)),
        **dict(zip(_QUANTILES, map(float, quantiles), strict=True)),
        "reward_length_corr": _correlation(rewards, sequences.lengths[is_given]),
    }


def are_equal(lowest: Array, highest: Array) -> Array:
    """Return whether rewards between two extremes are equal, up to the rounding of their computation."""
    return highest - lowest <= EQUAL_WITHIN * np.maximum(1.0, np.maximum(np.abs(lowest), np.abs(highest)))


def is_constant(values: Array) -> bool:
    """Return whether all values are equal, up to the rounding of their computation. Args: values: [N], N >= 1."""
    lowest, highest = float(np.minimum.reduce(values)), float(np.maximum.reduce(values))
    return highest - lowest <= EQUAL_WITHIN * max(1.0, abs(lowest), abs(highest))


def _correlation(rewards: Array, lengths: Array) -> float:
    """Return Pearson's correlation; NaN if either is constant."""
    if len(rewards) < 2 or is_constant(rewards) or (lengths == lengths[0]).all():
        return math.nan
    n = len(rewards)
    x, y = rewards - np.add.reduce(rewards) / n, lengths - np.add.reduce(lengths) / n
    products = np.add.reduce(np.array([x * y, x * x, y * y]), -1)
    correlation = float(products[0] / np.sqrt(products[1] * products[2]))
    return min(max(correlation, -1.0), 1.0) if math.isfinite(correlation) else math.nan
