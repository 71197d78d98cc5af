"""Readings: the signals that a diagnosis reads, so that whoever holds a history need not hand over all of it."""

from __future__ import annotations

from trmon_client.core.columns.schema import PAIRS

OF_ENGINES = (
    *("prob_pearson", "prob_diff_max", "ppl_ratio", "kl_k1", "kl_k2", "kl_k3", "k3_excess"),
    *("ratio_mean", "ratio_shift", "is_weight_std", "chi2_token", "ess_token", "tv", "band_fraction"),
)
"""Read of one pair, by stem."""
OF_BATCH = (
    *("saturated_fraction", "invalid_fraction", "engine_lag", "version_lag_max", "n_tokens"),
    *("staleness_kl_k3", "staleness_chi2_token", "clip_fraction", "zero_variance_groups"),
    *("ess_seq_relative", "response_length_growth", "mask_rate"),
)
OF_TRAINER = ("grad_norm", "grad_variance", "router_flip_rate")
"""The trainer's own scalars."""

READINGS: tuple[str, ...] = tuple(
    dict.fromkeys((*(f"{pair}_{stem}" for pair in PAIRS for stem in OF_ENGINES), *OF_BATCH, *OF_TRAINER))
)
"""Every name that a diagnosis reads. One of the past's own, as clip_fraction_rise, is made of them."""
