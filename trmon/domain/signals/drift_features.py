"""Drift features that the rules and the diagnosis read: k3_excess, the shifts of two means, and the two lags."""

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
HEAVY_TAIL_VARIANCE = 1.0
"""Variance of d above which the spread of a sample no longer bounds the error of its mean ratio."""


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


def ratio_shift(sequences: SequenceMatrix, pair: Pair) -> float:
    """Return how many standard errors the mean ratio is above 1; far from 0, the supports differ.

    Returns: (ratio_mean - 1)/(sd(rho)/sqrt(n)), infinite if the standard error is 0 or too small for a float, 0 if
    the mean is 1 as well; NaN without a valid token, or if the ratios are so heavy-tailed that their mean depends on
    tokens that a sample misses.
    Source: formulas, section 9, A''.
    """
    sums = sequences.sums
    n = sums["n_tokens"]
    if math.isnan(n) or _variance(sums, f"{pair}_sum_d", f"{pair}_sum_sq_d") > HEAVY_TAIL_VARIANCE:
        return math.nan
    deviation = sums[f"{pair}_sum_ratio_dev"] / n
    variance = _variance(sums, f"{pair}_sum_ratio_dev", f"{pair}_sum_sq_ratio_dev")
    return _over_standard_error(deviation, math.sqrt(variance / n))


def ppl_shifts(sequences: SequenceMatrix) -> dict[str, float]:
    """Return how many standard errors the ppl_ratio of each pair is above 1: a small batch is no mismatch of engines.

    Returns: ppl_shift by its full name: (ppl_ratio - 1)/(sd over sequences/sqrt(N)), infinite if the standard error is
    0, 0 if ppl_ratio is 1 as well; NaN without a valid token.
    Source: formulas, section 9, A.
    """
    pairs = sequences.columns.pairs
    if not pairs:
        return {}
    deviations = np.expm1(-sequences.matrix([f"{pair}_sum_d" for pair in pairs]) / sequences.lengths)
    n = deviations.shape[-1]
    means = (np.add.reduce(deviations, -1) / n).tolist()
    squares = (np.add.reduce(deviations * deviations, -1) / n).tolist()
    return {
        f"{pair}_ppl_shift": _over_standard_error(mean, math.sqrt(max(square - mean * mean, 0.0) / n))
        for pair, mean, square in zip(pairs, means, squares, strict=True)
    }


def staleness_lag(columns: Columns, *, version_lag: float) -> float:
    """Return the lag in weight versions between pi and pi_old: the whole lag minus the lag between the engines.

    Returns: versions, 0 if the trainer states none; NaN without a staleness pair.
    Source: formulas, section 9, B and G.
    """
    if "staleness" not in columns.pairs:
        return math.nan
    lag = version_lag - engine_lag(columns)
    return 0.0 if math.isnan(lag) else lag


def _over_standard_error(deviation: float, standard_error: float) -> float:
    if standard_error == 0.0:
        return math.copysign(math.inf, deviation) if deviation else 0.0
    return deviation / standard_error


def _variance(sums: Mapping[str, float], of: str, squares: str) -> float:
    n = sums["n_tokens"]
    mean = sums[of] / n
    return max(sums[squares] / n - mean * mean, 0.0)


@np.errstate(all="ignore")
def columns_signals(columns: Columns) -> dict[str, float]:
    """Return the batch signals and the drift features by name. Source: formulas, sections 5 and 9."""
    sequences = SequenceMatrix.of(columns)
    found = batch_signals.compute_of_sequences(sequences)
    found |= {f"{pair}_k3_excess": k3_excess(sequences, pair) for pair in columns.pairs}
    found |= {f"{pair}_ratio_shift": ratio_shift(sequences, pair) for pair in columns.pairs}
    return found | ppl_shifts(sequences)


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
