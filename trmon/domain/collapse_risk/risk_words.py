"""The inputs of the risk in words, for people who do not know trmon's names of signals."""

from __future__ import annotations

from collections.abc import Mapping

INPUT_WORDS: Mapping[str, str] = {
    "reward_mean": "reward",
    "reward_std": "spread of rewards",
    "zero_variance_groups": "groups of equal rewards",
    "effective_signal": "learning signal",
    "sampled_entropy": "entropy",
    "response_length_mean": "response length",
    "length_limit_share": "responses cut at the limit",
    "reward_length_corr": "correlation of reward and length",
    "grad_norm": "gradient norm",
    "lr": "learning rate",
    "kl_k3": "KL per token",
    "chi2_token_p95": "spread of token weights",
    "ess_token": "effective share of tokens",
    "ess_seq": "effective share of sequences",
    "prob_pearson": "agreement of token probabilities",
    "prob_diff_mean": "mean gap of token probabilities",
    "ratio_mean": "mean importance ratio",
    "saturated_fraction": "tokens with padded log-probs",
    "router_flip_rate": "tokens with other experts",
    "version_lag_mean": "age of the sampling weights",
    "staleness_kl_k3": "KL of the updates",
    "staleness_abs_log_ratio_max": "largest log-ratio of the updates",
    "staleness_ess_seq": "effective share of sequences in the updates",
    "clip_fraction": "clipped tokens",
}
"""The words of each input; a few of them stand in a sentence."""
