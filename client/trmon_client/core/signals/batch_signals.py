"""Computes batch signals, which feed history, gauges and alerts, from columns and histograms."""

from __future__ import annotations

import math

import numpy as np

from trmon_client.core.column_schema import GAPS
from trmon_client.core.columns import Columns, SequenceMatrix
from trmon_client.core.reduction.sequences import SUM_LOGP, SUM_SQ_LOGP
from trmon_client.core.reduction.token_terms import RATIOS, rollout_pair
from trmon_client.core.signals.catalogue import REGISTRY_VERSION, SIGNALS, SignalSpec
from trmon_client.core.signals.gradient_signals import gradient_signals, quotient, regression_signals
from trmon_client.core.signals.group_signals import (
    advantage_signals,
    group_signals,
    length_signals,
    reward_signals,
    signals_by_sign,
)
from trmon_client.core.signals.pair_signals import pair_signals


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
