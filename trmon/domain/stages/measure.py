"""Measure: the batch's columns become signals: formulas, section 5, and what the rules need beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trmon.domain.stages.merge import Merged
from trmon_client.core import bounds, signals
from trmon_client.core.columns import Columns
from trmon_client.core.schema import Pair

K3_FLOOR = 1e-6
K3_FACTOR = 10.0
STANDARD_ERRORS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The merged batch and its signals by name."""

    merged: Merged
    signals: dict[str, float]


def measure(merged: Merged) -> Measured:
    """Return the batch's signals, those of the rules and the bounds among them."""
    columns = merged.columns
    found = signals.compute(columns)
    found |= {f"{pair}_k3_excess": k3_excess(columns, pair) for pair in columns.pairs}
    found["engine_lag"] = engine_lag(columns)
    limits = _bounds(columns)
    found |= {"bound_adaptive": limits.adaptive, "bound_trpo": limits.trpo}
    return Measured(merged=merged, signals=found)


def k3_excess(columns: Columns, pair: Pair) -> float:
    """Return by what factor kl_k3 exceeds what honest log-probs can show; above 1 they look corrupt.

    Returns: kl_k3 / (10 max(|kl_k1|, 3 sd(d)/sqrt(n), 1e-6)); NaN without a valid token.
    Source: formulas, section 9, A'.
    """
    n = float(columns["n_tokens"].sum())
    if n == 0:
        return math.nan
    mean = float(columns[f"{pair}_sum_d"].sum()) / n
    mean_sq = float(columns[f"{pair}_sum_sq_d"].sum()) / n
    standard_error = math.sqrt(max(mean_sq - mean * mean, 0.0) / n)
    honest = max(abs(mean), STANDARD_ERRORS * standard_error, K3_FLOOR)
    return float(columns[f"{pair}_sum_k3"].sum()) / n / (K3_FACTOR * honest)


def engine_lag(columns: Columns) -> float:
    """Return how many versions lie between the two sides of the pair that rules read; 0 is one set of weights.

    The mismatch pair is at one set of weights by definition, unless the trainer names versions that say otherwise;
    for another pair only versions tell.
    Returns: versions; NaN where it cannot be known.
    Source: formulas, sections 1 and 9.
    """
    has_mismatch = "mismatch" in columns.pairs
    numerator = columns.old_version if has_mismatch and columns.old_version is not None else columns.trainer_version
    if numerator is None or "version_min" not in columns:
        return 0.0 if has_mismatch else math.nan
    versions = columns["version_min"][(columns["n_tokens"] > 0) & (columns["version_min"] >= 0)]
    return float(np.max(numerator - versions)) if len(versions) else math.nan


def _bounds(columns: Columns) -> bounds.ErrorBounds:
    """Columns come from outside: a KL below zero bounds nothing."""
    try:
        return bounds.batch_bounds(columns)
    except ValueError:
        return bounds.UNKNOWN
