"""Metric names of TRL's GRPOTrainer, as in its console output and in trainer_state.json."""

from __future__ import annotations

from trmon.domain.framework_names.metric_table import MetricTable

_CLIPPED = "computed after clipping"

TRL = MetricTable(
    framework="TRL",
    version="1.16.0",
    files=("trl/trainer/grpo_trainer.py",),
    signals={
        "sampling/sampling_logp_difference/mean": "mismatch_abs_log_ratio_mean",
        "sampling/sampling_logp_difference/max": "mismatch_abs_log_ratio_max",
        "clip_ratio/region_mean": "clip_fraction",
        "cispo_clip_ratio": "clip_fraction",
        "frac_reward_zero_std": "zero_variance_groups",
        "reward": "reward_mean",
        "reward_std": "reward_std",
        "completions/mean_length": "response_length_mean",
        "completions/max_length": "response_length_max",
        "completions/clipped_ratio": "length_limit_share",
        "learning_rate": "lr",
        "grad_norm": "grad_norm",
        "loss": "loss",
        "entropy": "entropy",
    },
    excluded={
        "sampling/importance_sampling_ratio/mean": _CLIPPED,
        "sampling/importance_sampling_ratio/min": _CLIPPED,
        "sampling/importance_sampling_ratio/max": _CLIPPED,
        "clip_ratio/low_mean": "one side of clip_ratio/region_mean",
        "clip_ratio/high_mean": "one side of clip_ratio/region_mean",
        "completions/mean_terminated_length": "completions/mean_length of responses that ended by themselves",
        "kl": "in TRL, distance from the reference model, not off-policy drift",
    },
    prefixes=("train/",),
    steps=("train/global_step",),
    step_seconds=("step_time",),
    agreement="use_vllm=True, vllm_importance_sampling_correction=True",
)
