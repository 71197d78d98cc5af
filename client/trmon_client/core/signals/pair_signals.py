"""Computes the signals of all pairs at once; arrays are [P], or [P, N] for N sequences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache, partial

import numpy as np

from trmon_client.core.arrays import MAX_CACHED_LAYOUTS, NUMPY, Array
from trmon_client.core.column_schema import Pair
from trmon_client.core.columns import SequenceMatrix, abs_quantiles, column_rows, percentile
from trmon_client.core.reduction.token_terms import clamp_log_ratio

CHI2_SEQ_CAP = 1e12
MIN_SPREAD_SEQUENCES = 32
"""Below this number of sequences their spread is unknown."""
MIN_VARIANCE = 1e-12
"""At or below this variance a probability counts as constant, and its correlation is undefined."""

_MEANS = (
    *("sum_d", "sum_abs_d", "sum_sq_d", "sum_ratio_dev", "sum_sq_ratio_dev", "sum_ratio_deficit", "sum_k3"),
    *("n_band_low", "n_band_high", "n_trunc", "sum_trunc_ratio", "sum_sq_trunc_ratio"),
    *("sum_prob_diff", "sum_sq_prob_diff", "sum_p", "sum_q", "sum_pp", "sum_qq", "sum_pq", "sum_binary_kl"),
)
_PER_SEQUENCE = (
    *("sum_d", "sum_ratio_dev", "sum_sq_ratio_dev", "sum_ratio_deficit"),
    *("min_d", "max_d", "max_prob_diff", "max_binary_kl"),
)


_sum, _lowest, _highest = (partial(function.reduce, axis=-1) for function in (np.add, np.minimum, np.maximum))


@dataclass(frozen=True, slots=True)
class _Pairs:
    """The columns of all pairs: `each` by sequence with their extremes, `mean` per token of the batch."""

    lengths: Array
    each: dict[str, Array]
    lowest: dict[str, Array]
    highest: dict[str, Array]
    mean: dict[str, Array]


def pair_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the signals of every pair by their full names. Source: formulas, section 5."""
    pairs = sequences.columns.pairs
    if not pairs:
        return {}
    each = sequences.values[_rows(sequences.names, pairs, _PER_SEQUENCE)]
    means = sequences.totals[_rows(sequences.names, pairs, _MEANS)] / sequences.sums["n_tokens"]
    batch = _Pairs(
        lengths=sequences.lengths,
        each=dict(zip(_PER_SEQUENCE, each, strict=True)),
        lowest=dict(zip(_PER_SEQUENCE, _lowest(each), strict=True)),
        highest=dict(zip(_PER_SEQUENCE, _highest(each), strict=True)),
        mean=dict(zip(_MEANS, means, strict=True)),
    )
    stems = {
        **_divergences(batch),
        **_token_weights(batch),
        **_sequence_weights(batch),
        "drift_spread": _drift_spread(batch),
        **_perplexities(batch),
        **_probabilities(batch),
    }
    found = dict(zip(_names(pairs, tuple(stems)), np.concatenate(list(stems.values())).tolist(), strict=True))
    return {**found, **_tails(sequences, stems["abs_log_ratio_max"])}


@cache
def _names(pairs: tuple[Pair, ...], stems: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"{pair}_{stem}" for stem in stems for pair in pairs)


@lru_cache(MAX_CACHED_LAYOUTS)
def _rows(columns: tuple[str, ...], pairs: tuple[Pair, ...], stems: tuple[str, ...]) -> Array:
    """Return the row of each column of each pair among all columns, [stems, P]."""
    row_of = column_rows(columns)
    return np.array([row_of[name] for name in _names(pairs, stems)]).reshape(len(stems), len(pairs))


def _divergences(batch: _Pairs) -> dict[str, Array]:
    mean, highest = batch.mean, batch.highest
    k1, k3 = -mean["sum_d"], mean["sum_k3"]
    return {
        "kl_k1": k1,
        "kl_k2": mean["sum_sq_d"] / 2,
        "kl_k3": k3,
        "k3_k1_ratio": np.where(np.abs(k1) > 1e-6, k3 / k1, np.nan),
        "abs_log_ratio_mean": mean["sum_abs_d"],
        "abs_log_ratio_max": np.maximum(-batch.lowest["min_d"], highest["max_d"]),
        "tv": mean["sum_ratio_deficit"],
        "tv_seq_max": _highest(batch.each["sum_ratio_deficit"] / batch.lengths),
        "binary_kl_mean": mean["sum_binary_kl"],
        "binary_kl_max": highest["max_binary_kl"],
    }


def _token_weights(batch: _Pairs) -> dict[str, Array]:
    """Compute moments of rho from rho - 1, so that nothing cancels when policies agree."""
    mean, each = batch.mean, batch.each
    deviation, sq_deviation = mean["sum_ratio_dev"], mean["sum_sq_ratio_dev"]
    variance = np.maximum(sq_deviation - deviation**2, 0.0)
    chi2_sn = variance / (1 + deviation) ** 2
    chi2_each = (2 * each["sum_ratio_dev"] + each["sum_sq_ratio_dev"]) / batch.lengths
    return {
        "ratio_mean": 1 + deviation,
        "chi2_token": 2 * deviation + sq_deviation,
        "chi2_token_sn": chi2_sn,
        "chi2_token_p95": percentile(chi2_each, 0.95),
        "ess_token": 1 / (1 + chi2_sn),
        "ess_truncated": mean["sum_trunc_ratio"] ** 2 / mean["sum_sq_trunc_ratio"],
        "is_weight_std": np.sqrt(variance),
        "is_weight_min": np.exp(clamp_log_ratio(NUMPY, batch.lowest["min_d"])),
        "is_weight_max": np.exp(clamp_log_ratio(NUMPY, batch.highest["max_d"])),
        "band_fraction": mean["n_band_low"] + mean["n_band_high"],
        "trunc_fraction": mean["n_trunc"],
    }


def _sequence_weights(batch: _Pairs) -> dict[str, Array]:
    """Divide by the largest weight first, because exp(S_i) overflows on long sequences."""
    log_weight = batch.each["sum_d"]
    n = log_weight.shape[-1]
    largest = batch.highest["sum_d"]
    weight = np.exp(log_weight - largest[:, None])
    sum_weight, sum_sq_weight = _sum(weight), _sum(weight * weight)
    chi2_log1p = 2 * largest + np.log(sum_sq_weight / n)
    return {
        "chi2_seq_log1p": chi2_log1p,
        "chi2_seq": np.minimum(np.expm1(chi2_log1p), CHI2_SEQ_CAP),
        "ess_seq": sum_weight**2 / (n * sum_sq_weight),
        "seq_log_ratio_mean": _sum(log_weight) / n,
        "seq_log_ratio_min": batch.lowest["sum_d"],
        "seq_log_ratio_max": largest,
    }


def _drift_spread(batch: _Pairs) -> Array:
    """Return the spread of (S_i - T_i sum S/sum T)/sqrt(T_i), free of the lengths and of outliers; NaN for few."""
    log_weight, lengths = batch.each["sum_d"], batch.lengths
    if len(lengths) < MIN_SPREAD_SEQUENCES:
        return np.full(len(log_weight), np.nan)
    mean = _sum(log_weight) / _sum(lengths)
    deviations = (log_weight - mean[:, None] * lengths) / np.sqrt(lengths)
    return ((percentile(deviations, 0.84) - percentile(deviations, 0.16)) / 2) ** 2


def _perplexities(batch: _Pairs) -> dict[str, Array]:
    log_geo = batch.each["sum_d"] / batch.lengths
    n = log_geo.shape[-1]
    geo = np.exp(log_geo)
    return {
        "geo_ratio_mean": _sum(geo) / n,
        "geo_ratio_min": _lowest(geo),
        "geo_ratio_max": _highest(geo),
        "ppl_ratio": _sum(np.exp(-log_geo)) / n,
        "log_ppl_diff_mean": -_sum(log_geo) / n,
        "log_ppl_diff_abs_mean": _sum(np.abs(log_geo)) / n,
        "log_ppl_diff_min": -_highest(log_geo),
        "log_ppl_diff_max": -_lowest(log_geo),
    }


def _probabilities(batch: _Pairs) -> dict[str, Array]:
    mean = batch.mean
    p, q, gap = mean["sum_p"], mean["sum_q"], mean["sum_prob_diff"]
    var_p, var_q = mean["sum_pp"] - p * p, mean["sum_qq"] - q * q
    correlation = np.minimum(np.maximum((mean["sum_pq"] - p * q) / np.sqrt(var_p * var_q), -1.0), 1.0)
    return {
        "prob_pearson": np.where((var_p > MIN_VARIANCE) & (var_q > MIN_VARIANCE), correlation, np.nan),
        "prob_diff_mean": gap,
        "prob_diff_std": np.sqrt(np.maximum(mean["sum_sq_prob_diff"] - gap * gap, 0.0)),
        "prob_diff_max": batch.highest["max_prob_diff"],
    }


def _tails(sequences: SequenceMatrix, largest: Array) -> dict[str, float]:
    """Return percentiles of |d| for the pairs with a histogram."""
    pairs = sequences.columns.pairs
    with_histogram = [pair for pair in pairs if pair in sequences.columns.histograms]
    if not with_histogram:
        return {}
    counts = np.array([sequences.columns.histograms[pair] for pair in with_histogram])
    largest = largest[[pairs.index(pair) for pair in with_histogram]]
    tails = abs_quantiles(counts, tuple(_TAILS.values()), largest=largest)
    return {
        f"{pair}_{stem}": value
        for pair, row in zip(with_histogram, tails, strict=True)
        for stem, value in zip(_TAILS, row, strict=True)
    }


_TAILS = {"abs_log_ratio_p99": 0.99, "abs_log_ratio_p999": 0.999}
