"""Computes what the columns say of the gradient: its power, what PPO's clip lets through, and the pull on entropy.

The gradient of log pi(y) by the logits of a token is pi - 1[v = y], and its squared norm
W = sum_v (pi_v - 1[v = y])^2 = 1 - 2 pi_y + sum_v pi_v^2. The sum over v other than y of pi_v^2 is between 0 and
(1 - pi_y)^2, so that W is between (1 - pi_y)^2 and 2 (1 - pi_y)^2.
"""

from __future__ import annotations

import math

import numpy as np

from trmon_client.core.columns.columns import Array
from trmon_client.core.columns.schema import Pair
from trmon_client.core.columns.sequence_matrix import SequenceMatrix

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
