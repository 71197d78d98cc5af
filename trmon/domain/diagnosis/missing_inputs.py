"""Missing inputs: which argument or call of the client provides a missing signal."""

from __future__ import annotations

from trmon.domain.diagnosis import features

_PAIRS: dict[str, str] = {
    "mismatch": "pass rollout_logprobs and old_logprobs to log_batch",
    "total": "pass rollout_logprobs and logprobs to log_batch",
    "staleness": "pass old_logprobs and logprobs to log_batch, once for each update",
}
_VERSIONS = "pass versions and trainer_version to log_batch"
_SIGNALS: dict[str, str] = {
    "engine_lag": f"{_VERSIONS}, and old_version if pi_old is not of the newest weights",
    "staleness_lag": _VERSIONS,
    "staleness_growth": _PAIRS["staleness"],
    "clip_fraction": "pass advantages to log_batch, once for each update",
    "clip_fraction_rise": f"pass advantages to log_batch for {features.MIN_RISE_ROWS + features.MEDIAN_ROWS} steps",
    "response_length_growth": "105 steps of history",
    "ess_seq_relative": "a history that includes the first 20 steps of the run, the baseline",
    "grad_norm_relative": 'log_scalars(step, {"grad_norm": ...}) for 21 steps',
    "zero_variance_groups_least": f"pass rewards and group_ids to log_batch for {features.FLAT_ROWS} steps",
    "router_flip_rate": 'log_scalars(step, {"router_flip_rate": ...}); only mixtures of experts have one',
    "ratio_shift": f"n_tokens with ratio_mean and is_weight_std: {_PAIRS['mismatch']}",
    "k3_excess": f"n_tokens and kl_k2 with kl_k1 and kl_k3: {_PAIRS['mismatch']}",
    "reward_collapse": 'pass rewards to log_batch, or log_scalars(step, {"reward": ...}), for 21 steps',
    "reward_decline": 'pass rewards to log_batch, or log_scalars(step, {"reward": ...}), for 40 steps',
    "entropy_relative": 'pass log-probs to log_batch, or log_scalars(step, {"entropy": ...}), for 20 steps',
    "entropy_rise": 'pass log-probs to log_batch, or log_scalars(step, {"entropy": ...}), for 21 steps',
    "response_length_relative": "the lengths of 20 steps",
    "length_limit_ema": "pass truncated to log_batch",
    "length_limit_rise": "pass truncated to log_batch for 21 steps",
    "reward_length_corr_ema": "pass rewards to log_batch",
    "effective_signal_relative": "pass rewards and group_ids to log_batch for 40 steps",
    "version_span_max": "pass versions of each token to log_batch",
    "version_span_rise": "pass versions of each token to log_batch for 21 steps",
    "router_flip_relative": 'log_scalars(step, {"router_flip_rate": ...}) for 20 steps; only MoE models have one',
    "router_replay": 'init(config={"router_replay": true}) where routing is replayed',
    "nonfinite_steps": "a step with scalars",
    "temperature_slope": f"2,000 tokens: {_PAIRS['mismatch']}",
    "temperature_corr": f"2,000 tokens: {_PAIRS['mismatch']}",
    "ln_e_value": _PAIRS["mismatch"],
    "mu_zero_saturated_share": "pass rollout_logprobs to log_batch; without a log-prob of exactly 0 there is no share",
    "mask_rate:geo_mask": "the mask rate of geo_mask, which the service computes where it is active or a shadow",
}
_REWARDS = ("reward_ema", "zero_variance_groups")
_ENTROPY = ("entropy", *(f"{pair}_kl_k3" for pair in _PAIRS))
_LENGTHS = ("n_tokens", "response_length_mean", "response_length_median", "kl_k3")
INPUTS: dict[str, tuple[str, ...]] = {
    "clip_fraction_rise": ("clip_fraction",),
    "grad_variance_rise": ("grad_variance",),
    "grad_norm_relative": ("grad_norm",),
    "response_length_growth": _LENGTHS,
    "response_length_relative": _LENGTHS,
    "ess_seq_relative": ("ess_token",),
    "zero_variance_groups_least": ("zero_variance_groups",),
    "reward_collapse": _REWARDS,
    "reward_decline": _REWARDS,
    "entropy_relative": _ENTROPY,
    "entropy_rise": _ENTROPY,
    "length_limit_rise": ("length_limit_ema",),
    "effective_signal_relative": ("zero_variance_groups",),
    "version_span_rise": ("version_span_max",),
    "router_flip_relative": ("router_flip_rate",),
    "temperature_slope": ("kl_k3",),
    "temperature_corr": ("kl_k3",),
}
"""Signals that need a history, and inputs of which one is enough for it to come with more steps."""
_WHEN_NAN: dict[str, str] = {
    "ratio_shift": "ratios too heavy-tailed for their mean to be measured; look at the other findings first",
    "prob_pearson": "probabilities that hardly vary have no correlation; use more tokens, or harder prompts",
    "reward_length_corr_ema": "rewards or lengths that are equal in every step have no correlation",
}


def how_to_provide(signal: str, *, sent: bool) -> str:
    """Return how to provide a signal; `sent`: the signal was sent, but all its values are NaN."""
    prefix, _, rest = signal.partition("_")
    stem = rest if prefix in _PAIRS and signal not in _SIGNALS else signal
    if sent and stem in _WHEN_NAN:
        return _WHEN_NAN[stem]
    return _SIGNALS.get(stem) or _PAIRS.get(prefix, _PAIRS["mismatch"])
