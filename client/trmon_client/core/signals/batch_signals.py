"""Computes batch signals, which feed history, gauges and alerts, from columns and histograms.

What the columns say of the gradient: of log pi(y) by the logits of a token it is pi - 1[v = y], and its squared norm
W = sum_v (pi_v - 1[v = y])^2 = 1 - 2 pi_y + sum_v pi_v^2. The sum over v other than y of pi_v^2 is between 0 and
(1 - pi_y)^2, so that W is between (1 - pi_y)^2 and 2 (1 - pi_y)^2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trmon_client.core.arrays import Array
from trmon_client.core.column_schema import GAPS, Pair
from trmon_client.core.columns import EDGES, Columns, SequenceMatrix
from trmon_client.core.reduction.sequences import SUM_LOGP, SUM_SQ_LOGP
from trmon_client.core.reduction.token_terms import RATIOS, rollout_pair
from trmon_client.core.signals.catalogue import REGISTRY_VERSION, SIGNALS, SignalSpec
from trmon_client.core.signals.group_signals import (
    advantage_signals,
    group_signals,
    length_signals,
    reward_signals,
    signals_by_sign,
)
from trmon_client.core.signals.pair_signals import pair_signals

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


def reference_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the signals of the reference policy; absent without its log-probs.

    Source: [K]; DeepSeek-V3.2 (arXiv 2512.02556), eq. 7; formulas, section 5.
    """
    sums = sequences.sums
    if "n_ref_tokens" not in sums:
        return {}
    n = sums["n_ref_tokens"] or math.nan
    largest = float(sequences.of_column("max_ref_k3").max())
    signals = {
        "ref_kl_k1": -sums["sum_ref_d"] / n,
        "ref_kl_k2": sums["sum_sq_ref_d"] / (2 * n),
        "ref_kl_k3": sums["sum_ref_k3"] / n,
        "ref_kl_k3_max": largest if largest >= 0 else math.nan,
    }
    if "sum_ref_k3_is" in sums:
        signals["ref_kl_k3_is"] = sums["sum_ref_k3_is"] / n
    return signals


__all__ = ["REGISTRY_VERSION", "SIGNALS", "SignalSpec", "compute"]


def compute(columns: Columns) -> dict[str, float]:
    """Return the signals of a batch by name; a signal is absent if its input is not given.

    Columns on a device are copied to the host first.
    Returns: a subset of `SIGNALS`; nan where a signal cannot be computed, for example without a valid token.
    Source: formulas, section 5.
    """
    return compute_of_sequences(SequenceMatrix.of(columns.numpy()))


def compute_of_sequences(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the signals of a sequence matrix."""
    with np.errstate(all="ignore"):
        return {
            **pair_signals(sequences),
            **regression_signals(sequences),
            **length_signals(sequences),
            **_token_fractions(sequences),
            **_token_weights(sequences),
            **_suspicious_fractions(sequences),
            **_perplexities(sequences),
            **_sampling(sequences),
            **rollout_signals(sequences),
            **reward_signals(sequences),
            **advantage_signals(sequences),
            **signals_by_sign(sequences),
            **group_signals(sequences),
            **_versions(sequences),
            **_divergences(sequences),
            **reference_signals(sequences),
            **gradient_signals(sequences),
        }


def _token_fractions(sequences: SequenceMatrix) -> dict[str, float]:
    sums = sequences.sums
    n = sums["n_tokens"]
    found = {signal: sums[name] / n * factor for name, (signal, factor) in _PER_TOKEN_SIGNALS.items() if name in sums}
    return found | _clips_by_sign(sums)


def _clips_by_sign(sums: dict[str, float]) -> dict[str, float]:
    """Return what PPO clips and leaks of the tokens of each sign of the advantage; absent in older clients' reports."""
    if "n_clipped_high" not in sums:
        return {}
    gain, loss = sums["n_positive_advantage"], sums["n_negative_advantage"]
    return {
        "clip_fraction_positive": quotient(sums["n_clipped_high"], gain),
        "clip_fraction_negative": quotient(sums["n_clipped"] - sums["n_clipped_high"], loss),
        "leak_fraction_positive": quotient(sums["n_leaked"] - sums["n_leaked_high"], gain),
        "leak_fraction_negative": quotient(sums["n_leaked_high"], loss),
    }


_PER_TOKEN_SIGNALS = {
    "n_clipped": ("clip_fraction", 1.0),
    "n_leaked": ("leak_fraction", 1.0),
    "n_leaked_high": ("leak_high_fraction", 1.0),
    "n_dual_clipped": ("dual_clip_fraction", 1.0),
    "sum_abs_is_dev": ("staleness_tv_is", 0.5),
    "n_token_masked": ("token_mask_rate", 1.0),
    "n_token_truncated": ("token_trunc_rate", 1.0),
    "sum_token_weight": ("token_weight_mean", 1.0),
}


def _token_weights(sequences: SequenceMatrix) -> dict[str, float]:
    sums = sequences.sums
    if "sum_token_weight" not in sums or "sum_sq_token_weight" not in sums:
        return {}
    total, total_sq = np.float64(sums["sum_token_weight"]), sums["sum_sq_token_weight"]
    return {"token_weight_ess": float(total * total / (sums["n_tokens"] * total_sq))}


def _suspicious_fractions(sequences: SequenceMatrix) -> dict[str, float]:
    """Return fractions of valid + invalid tokens, which include sequences whose tokens are all invalid.

    The number of positive log-probs is beside its fraction, because it can count tokens of such sequences only.
    """
    columns, sums = sequences.columns, sequences.sums
    if sequences.rows is not None:
        sums = {name: float(columns[name].sum()) for name in ("n_tokens", *_SUSPICIOUS_SIGNALS) if name in columns}
    counting = sums["n_tokens"] + sums["n_invalid"]
    found = {"n_positive": sums["n_positive"] if counting else math.nan} if "n_positive" in sums else {}
    if "max_positive" in columns:
        largest = float(np.max(columns["max_positive"], initial=-math.inf))
        found["positive_max"] = largest if largest > -math.inf else math.nan
    return found | {
        signal: quotient(sums[name], counting) for name, signal in _SUSPICIOUS_SIGNALS.items() if name in sums
    }


_SUSPICIOUS_SIGNALS = {
    "n_invalid": "invalid_fraction",
    "n_positive": "positive_fraction",
    "n_saturated": "saturated_fraction",
    "n_clamped": "clamped_fraction",
}


def _perplexities(sequences: SequenceMatrix) -> dict[str, float]:
    present = [name for name in _PERPLEXITY_SIGNALS if name in sequences.columns]
    if not present:
        return {}
    perplexities = np.exp(-sequences.matrix(present) / sequences.lengths)
    means = np.add.reduce(perplexities, -1) / perplexities.shape[-1]
    return {_PERPLEXITY_SIGNALS[name]: value for name, value in zip(present, means.tolist(), strict=True)}


_PERPLEXITY_SIGNALS = {"sum_logp_rollout": "ppl_rollout", "sum_logp_old": "ppl_old", "sum_logp": "ppl"}


def _sampling(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the entropy of the sampler, estimated from its samples, and the saturated share of certain tokens."""
    sums, signals = sequences.sums, {}
    sampler = next((name for name in _PERPLEXITY_SIGNALS if name in sums), None)
    if sampler is not None:
        signals["sampled_entropy"] = -sums[sampler] / sums["n_tokens"]
    if "n_mu_zero" in sums and "n_saturated" in sums:
        signals["mu_zero_saturated_share"] = quotient(sums["n_saturated"], sums["n_mu_zero"])
    return signals


def rollout_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the signals of mu against the trainer's policy; absent without either, or without their columns.

    Source: findings, section 2b.
    """
    pair = rollout_pair(sequences.columns.pairs)
    if pair is None:
        return {}
    sums = sequences.sums
    above, below = RATIOS[pair]
    found = {name: sums[name] for name in _ROLLOUT_COUNTS if name in sums}
    if SUM_SQ_LOGP[above] in sums and SUM_SQ_LOGP[below] in sums:
        squares = (sums[name] for name in (f"{pair}_sum_sq_d", SUM_SQ_LOGP[above], SUM_SQ_LOGP[below]))
        found["logp_unit"], found["logp_unit_residual"] = unit_slope(*squares)
    if SUM_LOGP[below] in sums:
        found["mu_logprob_mean"] = quotient(sums[SUM_LOGP[below]], sums["n_tokens"])
    shift = float(np.add.reduce(np.abs(sequences.of_column(f"{pair}_sum_d"))))
    return found | {"seq_shift_share": quotient(shift, sums[f"{pair}_sum_abs_d"])}


def unit_slope(sq_d: float, sq_p: float, sq_q: float) -> tuple[float, float]:
    """Return the slope through 0 of log p on log q, and the share of the squares of d that it does not explain.

    The slope is log 2 if mu is given in log2, 1/log 2 if the trainer's log-probs are, and the share is then small.
    Args: sums over tokens of d^2, (log p)^2 and (log q)^2.
    """
    dot = (sq_p - sq_q - sq_d) / 2  # log p = log q + d
    explained = quotient(dot * dot, sq_q * sq_d)
    return 1 + quotient(dot, sq_q), max(1 - explained, 0.0)


_ROLLOUT_COUNTS = ("n_mu_zero", "n_mu_zero_unlikely", "n_unlikely", "n_prob_diff_half", "n_zero_tail")


def _versions(sequences: SequenceMatrix) -> dict[str, float]:
    columns = sequences.columns
    if "version_min" not in columns or "version_max" not in columns:
        return {}
    oldest, newest = sequences.of_column("version_min"), sequences.of_column("version_max")
    signals = {"version_span_max": float((newest - oldest).max())}
    if columns.trainer_version is not None:
        lag = columns.trainer_version - oldest
        signals |= {"version_lag_mean": float(lag.mean()), "version_lag_max": float(lag.max())}
    return signals


_LARGEST_DIVERGENCES = {
    "kl_max": "max_kl",
    "reverse_kl_max": "max_reverse_kl",
    "tv_max": "max_tv",
    **{f"{gap}_exact_tv_max": f"max_tv_{gap}" for gap in GAPS},
}


def _divergences(sequences: SequenceMatrix) -> dict[str, float]:
    columns = sequences.columns
    signals = {
        signal: float(sequences.of_column(name).max())
        for signal, name in _LARGEST_DIVERGENCES.items()
        if name in columns
    }
    means = (("tv_mean", "sum_tv"), *((f"{gap}_exact_tv_mean", f"sum_tv_{gap}") for gap in GAPS))
    n = sequences.sums["n_tokens"]
    signals |= {signal: sequences.sums[name] / n for signal, name in means if name in columns}
    if "sum_kl" in columns:
        total = sequences.sums["sum_kl"]
        signals |= {"kl_mean": total / sequences.sums["n_tokens"], "kl_seq": total / len(sequences.lengths)}
    return signals
