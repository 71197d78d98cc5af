"""Metric names of NeMo-RL's GRPO.

Its KL errors use the k3 estimator by default (`reference_policy_kl_type`), and are exact zeros where `prev_logprobs`
were not computed.
"""

from __future__ import annotations

from trmon.domain.framework_names.metric_table import MetricTable

NEMO_RL = MetricTable(
    framework="NeMo-RL",
    version="0.7.0, commit 7ea279ab",
    files=(
        "nemo_rl/algorithms/loss/loss_functions.py",
        "nemo_rl/algorithms/grpo.py",
        "nemo_rl/experience/rollouts.py",
    ),
    signals={
        "gen_kl_error": "mismatch_kl_k3",
        "sampling_importance_ratio": "mismatch_ratio_mean",
        "probs_ratio": "staleness_ratio_mean",
        "probs_ratio_min": "staleness_is_weight_min",
        "probs_ratio_max": "staleness_is_weight_max",
        "approx_entropy": "entropy",
        "grad_norm": "grad_norm",
        "loss": "loss",
        "lr": "lr",
        "reward": "reward_mean",
        "mean_gen_tokens_per_sample": "response_length_mean",
        "max_gen_tokens_per_sample": "response_length_max",
        "truncation_rate": "length_limit_share",
        "avg_trajectory_age": "version_lag_mean",
    },
    excluded={
        "policy_kl_error": "k3 with the roles of the engines exchanged",
        "js_divergence_error": "no signal is this divergence",
        "token_mult_prob_error": "the mean of exp|d|, which no signal is",
        "probs_ratio_clamped": "computed after clipping",
        "is_oob_ratio": "depends on the bounds of the correction",
        "kl_penalty": "distance from the reference model, not off-policy drift",
        "filtered_reward": "rewards after dynamic sampling; reward is read",
        "baseline_reward/pct_mixed": "a percentage that assumes rewards of 0 and 1",
    },
    prefixes=("train/",),
    steps=("train/global_step",),
    step_seconds=("timing/train/total_step_time",),
)
