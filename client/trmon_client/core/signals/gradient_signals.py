"""Computes what the columns say of the gradient: its power, what PPO's clip lets through, and the pull on entropy.

The gradient of log pi(y) by the logits of a token is pi - 1[v = y], and its squared norm
W = sum_v (pi_v - 1[v = y])^2 = 1 - 2 pi_y + sum_v pi_v^2. The sum over v other than y of pi_v^2 is between 0 and
(1 - pi_y)^2, so that W is between (1 - pi_y)^2 and 2 (1 - pi_y)^2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trmon_client.core.arrays import Array
from trmon_client.core.column_schema import Pair
from trmon_client.core.columns import SequenceMatrix
from trmon_client.core.histogram import EDGES
from trmon_client.core.reduction.sequences import SUM_LOGP, SUM_SQ_LOGP
from trmon_client.core.reduction.token_terms import RATIOS

_SUM_LOGP: dict[Pair, str] = {"total": "sum_logp", "staleness": "sum_logp", "mismatch": "sum_logp_old"}
"""The log-probs of each pair's numerator, the trainer's policy."""


def gradient_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the signals that need advantages, and the trainer's policy in a pair; absent without them.

    A sequence whose advantage is NaN has no part in them. Source: formulas, section 5.
    """
    columns = sequences.columns
    if "advantage" not in columns or columns.primary is None:
        return {}
    advantages = sequences.of_column("advantage")
    known = ~np.isnan(advantages)
    signals = _total_power(sequences, advantages, known)
    if (logp := _SUM_LOGP[columns.primary]) in columns:
        signals["logp_advantage_cov"] = _log_prob_covariance(sequences, advantages, known, logp=logp)
    if "n_leaked" in columns:
        beyond = sequences.sums["n_clipped"] + sequences.sums["n_leaked"]
        signals["leak_share"] = sequences.sums["n_leaked"] / beyond if beyond else math.nan
    return signals


def _total_power(sequences: SequenceMatrix, advantages: Array, known: Array) -> dict[str, float]:
    """Return the bounds of the mean of A^2 W, both exact if the columns have squared probabilities.

    Under token rules A is multiplied by the mean weight of the sequence's tokens, as verl does. Source: [DRIFT], verl.
    """
    scale = advantages
    if "sum_token_weight" in sequences.columns:
        scale = scale * sequences.of_column("sum_token_weight") / sequences.lengths
    low, high = _score_norms(sequences)
    powers = (_mean((scale * scale * norms)[known]) for norms in (low, high))
    return dict(zip(("proxy2_total_power_low", "proxy2_total_power_high"), powers, strict=True))


def _score_norms(sequences: SequenceMatrix) -> tuple[Array, Array]:
    """Return the bounds of each sequence's sum of W, [N]."""
    columns, n = sequences.columns, sequences.lengths
    pair = columns.kl_pair
    if "sum_pi_squared" in columns and pair in columns.pairs:
        exact = n - 2 * sequences.of_column(f"{pair}_sum_p") + sequences.of_column("sum_pi_squared")
        return exact, exact
    of = {stem: sequences.of_column(f"{columns.primary}_{stem}") for stem in ("sum_p", "sum_pp")}
    # Of probabilities near 1 only rounding is left, which must not become negative.
    low = np.maximum(n - 2 * of["sum_p"] + of["sum_pp"], 0.0)
    return low, 2 * low


def _log_prob_covariance(sequences: SequenceMatrix, advantages: Array, known: Array, *, logp: str) -> float:
    """Return the covariance over tokens of log pi, whose sums are in the column `logp`, and their sequence's advantage.

    Source: Cui et al., arXiv 2505.22617: under policy gradients entropy falls about in proportion to it.
    """
    n, gain = sequences.lengths[known], advantages[known]
    total = float(np.add.reduce(n))
    if not total > 0:
        return math.nan
    centred = gain - float(np.add.reduce(gain * n)) / total
    return float(np.add.reduce(centred * sequences.of_column(logp)[known])) / total


def _mean(values: Array) -> float:
    return float(np.add.reduce(values)) / len(values) if len(values) else math.nan


CONSTANT_BELOW = 1e-7
"""A quantity whose variance is at most this fraction of its mean square counts as constant, because of rounding."""

BETS = (0.01, 0.03, 0.1, 0.3, 0.9)
"""The stakes lambda of the e-value, which is the mean over them."""


_LOG_GROWTH = np.log1p(np.concatenate(([-1.0], np.expm1(EDGES)))[:, None] * np.array(BETS))
"""log(1 + lambda (rho - 1)) at the lower edge of each bin of the histogram, [N_BINS, lambdas]."""


def regression_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the slopes, temperatures and e-values of every pair.

    The slopes are absent without the sums of squares, which reports of older clients do not have, and the e-value
    without a histogram. Source: formulas, sections 5 and 9 (A', T).
    """
    found: dict[str, float] = {}
    for pair in sequences.columns.pairs:
        if all(SUM_SQ_LOGP[policy] in sequences.sums for policy in RATIOS[pair]):
            slopes = _slopes(sequences.sums, pair)
            found.update((f"{pair}_{stem}", value) for stem, value in slopes.items())
    histograms = sequences.columns.histograms
    values = ln_e_values(list(histograms.values()))
    return found | {f"{pair}_ln_e_value": value for pair, value in zip(histograms, values, strict=True)}


def _slopes(sums: dict[str, float], pair: Pair) -> dict[str, float]:
    """Return the slopes of d on log q and on log p, its correlation with log q, and the range of the temperature."""
    above, below = RATIOS[pair]
    n = sums["n_tokens"]
    var_d = _variance(sums[f"{pair}_sum_d"], sums[f"{pair}_sum_sq_d"], n)
    var_p, var_q = (_variance(sums[SUM_LOGP[name]], sums[SUM_SQ_LOGP[name]], n) for name in (above, below))
    # log p = log q + d, so each covariance follows from the three variances.
    cov_q, cov_p = (var_p - var_q - var_d) / 2, (var_p - var_q + var_d) / 2
    slope_q = quotient(cov_q, var_q)
    correlation = quotient(cov_q, math.sqrt(var_d * var_q))
    return {
        "logp_slope_q": slope_q,
        "logp_slope_p": quotient(cov_p, var_p),
        "logp_corr_q": correlation if math.isnan(correlation) else min(max(correlation, -1.0), 1.0),
        "temperature_near": 1 + slope_q,
        "temperature_far": 1 + quotient(var_d, cov_q),
    }


def _variance(total: float, total_sq: float, n: float) -> float:
    """Return the variance of n numbers; NaN if they are constant."""
    if not n:
        return math.nan
    mean, mean_sq = total / n, total_sq / n
    variance = mean_sq - mean * mean
    return variance if variance > CONSTANT_BELOW * mean_sq else math.nan


def quotient(numerator: float, denominator: float) -> float:
    """Return a quotient; NaN if the denominator is 0."""
    return numerator / denominator if denominator else math.nan


def ln_e_values(histograms: Sequence[Array]) -> list[float]:
    """Return the log of an e-value of each histogram against the hypothesis that the denominator sampled the tokens.

    Under it E[rho] <= 1 at every step, so each product of 1 + lambda (rho - 1) is a supermartingale that starts at 1:
    P(E >= x) <= 1/x, whatever the tails. Each d counts as the lower edge of its bin, which can only lower E.
    Args: histograms: of d, [N_BINS] each. Returns: NaN for an empty one.
    Source: formulas, sections 5 and 9 (tests of A').
    """
    if not histograms:
        return []
    counts = np.array(histograms, np.float64)
    log_wealth, totals = (counts @ _LOG_GROWTH).tolist(), np.add.reduce(counts, -1).tolist()
    return [_log_mean_exp(logs) if n else math.nan for logs, n in zip(log_wealth, totals, strict=True)]


def _log_mean_exp(logs: Sequence[float]) -> float:
    largest = max(logs)
    return largest + math.log(sum(math.exp(log - largest) for log in logs) / len(logs))
