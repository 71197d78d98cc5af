"""The signals that a diagnosis needs, so that callers can read only these from the store."""

from __future__ import annotations

from trmon.domain.signals.run_features import FEATURE_SIGNALS
from trmon_client.core.columns.schema import PAIRS

PAIR_SIGNALS = (
    *("prob_pearson", "prob_diff_max", "ppl_ratio", "ppl_shift", "kl_k1", "kl_k2", "kl_k3", "k3_excess"),
    *("ratio_mean", "ratio_shift", "is_weight_std", "chi2_token", "ess_token", "tv", "band_fraction"),
    *("ln_e_value", "temperature_near", "temperature_far"),
)
"""Signals of a pair, by stem."""
BATCH_SIGNALS = (
    *("saturated_fraction", "invalid_fraction", "engine_lag", "version_lag_max", "n_tokens"),
    *("staleness_kl_k3", "staleness_chi2_token", "clip_fraction", "zero_variance_groups"),
    *("ess_seq_relative", "response_length_growth", "mask_rate:geo_mask", "mu_zero_saturated_share", "router_replay"),
    *("version_span_max", "all_solved_groups", "none_solved_groups", *FEATURE_SIGNALS),
)
TRAINER_SIGNALS = ("grad_norm", "grad_variance", "router_flip_rate")
"""Trainer scalars."""

REQUIRED_SIGNALS: tuple[str, ...] = tuple(
    dict.fromkeys((*(f"{pair}_{stem}" for pair in PAIRS for stem in PAIR_SIGNALS), *BATCH_SIGNALS, *TRAINER_SIGNALS))
)
"""All names that a diagnosis reads; features of the history, such as clip_fraction_rise, are computed from them."""
