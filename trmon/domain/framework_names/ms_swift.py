"""Metric names of ms-swift's GRPO trainer, which extends TRL's; its `logging.jsonl` has the step as "12/400"."""

from __future__ import annotations

from trmon.domain.framework_names.metric_table import MetricTable

_CORRECTION = "rollout_correction"

MS_SWIFT = MetricTable(
    framework="ms-swift",
    version="4.6.0",
    files=("swift/rlhf_trainers/grpo_trainer.py", "swift/trainers/patcher.py"),
    signals={
        f"{_CORRECTION}/kl": "mismatch_kl_k1",
        f"{_CORRECTION}/k3_kl": "mismatch_kl_k3",
        f"{_CORRECTION}/chi2_token": "mismatch_chi2_token",
        f"{_CORRECTION}/ppl_ratio": "mismatch_ppl_ratio",
        f"{_CORRECTION}/log_ppl_diff": "mismatch_log_ppl_diff_mean",
        f"{_CORRECTION}/log_ppl_abs_diff": "mismatch_log_ppl_diff_abs_mean",
        f"{_CORRECTION}/log_ppl_diff_min": "mismatch_log_ppl_diff_min",
        f"{_CORRECTION}/log_ppl_diff_max": "mismatch_log_ppl_diff_max",
        f"{_CORRECTION}/training_ppl": "ppl_old",
        f"{_CORRECTION}/rollout_ppl": "ppl_rollout",
        "clip_ratio/region_mean": "clip_fraction",
        "cispo_clip_ratio": "clip_fraction",
        "clip_ratio": "clip_fraction",
        "frac_reward_zero_std": "zero_variance_groups",
        "reward": "reward_mean",
        "reward_std": "reward_std",
        "completions/mean_length": "response_length_mean",
        "completions/max_length": "response_length_max",
        "completions/clipped_ratio": "length_limit_share",
        "entropy/mean": "entropy",
        "learning_rate": "lr",
        "grad_norm": "grad_norm",
        "loss": "loss",
    },
    excluded={
        f"{_CORRECTION}/chi2_seq": "of the geometric mean of a sequence's ratios; chi2_seq is of their product",
        f"{_CORRECTION}/ess": "computed from truncated weights, which hide outliers",
        f"{_CORRECTION}/is_weight_mean": "computed from truncated weights",
        f"{_CORRECTION}/clipped_frac": "depends on the bounds of the correction",
        "kl": "in ms-swift, distance from the reference model, not off-policy drift",
    },
    prefixes=("train/",),
    steps=("global_step/max_steps", "train/global_step"),
    agreement="--log_rollout_offpolicy_metrics true",
)
