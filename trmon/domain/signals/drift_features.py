"""Drift features: k3_excess, the lag of staleness, and the pair that dominates."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from trmon_client.core.bounds import engine_lag
from trmon_client.core.column_schema import Pair
from trmon_client.core.columns import Columns, SequenceMatrix
from trmon_client.core.signals import batch_signals

K3_FLOOR = 1e-6
K3_FACTOR = 10.0
STANDARD_ERRORS = 3.0


def k3_excess(sequences: SequenceMatrix, pair: Pair) -> float:
    """Return kl_k3 over the largest value that valid log-probs can show; above 1 they look corrupt.

    Returns: kl_k3 / (10 max(|kl_k1|, 3 sd(d)/sqrt(n), 1e-6)); NaN without a valid token.
    Source: formulas, section 9, A'.
    """
    sums = sequences.sums
    n = sums["n_tokens"]
    mean = sums[f"{pair}_sum_d"] / n
    standard_error = math.sqrt(_variance(sums, f"{pair}_sum_d", f"{pair}_sum_sq_d") / n)
    largest_valid = max(abs(mean), STANDARD_ERRORS * standard_error, K3_FLOOR)
    return sums[f"{pair}_sum_k3"] / n / (K3_FACTOR * largest_valid)


def staleness_lag(columns: Columns, *, version_lag: float) -> float:
    """Return the lag in weight versions between pi and pi_old: the whole lag minus the lag between the engines.

    Returns: versions, 0 if the trainer states none; NaN without a staleness pair.
    Source: formulas, section 9, B and G.
    """
    if "staleness" not in columns.pairs:
        return math.nan
    lag = version_lag - engine_lag(columns)
    return 0.0 if math.isnan(lag) else lag


def _variance(sums: Mapping[str, float], of: str, squares: str) -> float:
    n = sums["n_tokens"]
    mean = sums[of] / n
    return max(sums[squares] / n - mean * mean, 0.0)


@np.errstate(all="ignore")
def columns_signals(columns: Columns) -> dict[str, float]:
    """Return the batch signals and the drift features by name. Source: formulas, sections 5 and 9."""
    sequences = SequenceMatrix.of(columns)
    found = batch_signals.compute_of_sequences(sequences)
    return found | {f"{pair}_k3_excess": k3_excess(sequences, pair) for pair in columns.pairs}


LAGS: Mapping[Pair, str] = {"mismatch": "engine_lag", "staleness": "staleness_lag", "total": "version_lag_max"}
"""The signal that holds the lag of a pair, in weight versions."""


def describe_drift(signals: Mapping[str, float]) -> str:
    """Return the dominant pair with its kl_k3 and its lag, such as "mismatch dominates (kl_k3 0.031, lag 0)".

    It is the part of the drift with the largest kl_k3: mismatch or staleness, else total.
    """
    known = {pair: kl for pair in LAGS if not math.isnan(kl := signals.get(f"{pair}_kl_k3", math.nan))}
    if not known:
        return "no pair is known"
    pair = max(known, key=lambda one: (one != "total", known[one]))
    lag = signals.get(LAGS[pair], math.nan)
    said = "lag unknown" if math.isnan(lag) else f"lag {lag:g}"
    verb = "is the only pair" if pair == "total" else "dominates"
    return f"{pair} {verb} (kl_k3 {known[pair]:.3g}, {said})"
