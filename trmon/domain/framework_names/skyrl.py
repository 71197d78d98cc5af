"""Metric names of SkyRL's trainer."""

from __future__ import annotations

from trmon.domain.framework_names.metric_table import MetricTable

_BEFORE = "policy/loss_metrics"

SKYRL = MetricTable(
    framework="SkyRL",
    version="0.3.0",
    files=(
        "skyrl/train/trainer.py",
        "skyrl/train/fully_async_trainer.py",
        "skyrl/train/generators/utils.py",
        "skyrl/backends/skyrl_train/workers/worker.py",
        "skyrl/backends/skyrl_train/workers/worker_utils.py",
        "skyrl/backends/skyrl_train/utils/off_policy_correction_utils.py",
        "skyrl/backends/skyrl_train/utils/ppo_utils.py",
    ),
    signals={
        "policy/rollout_train_logprobs_abs_diff_mean": "mismatch_abs_log_ratio_mean",
        "policy/rollout_train_logprobs_abs_diff_max": "mismatch_abs_log_ratio_max",
        "policy/minibatch_rollout_logprobs_abs_diff_mean": "total_abs_log_ratio_mean",
        "policy/minibatch_rollout_logprobs_abs_diff_max": "total_abs_log_ratio_max",
        f"{_BEFORE}/is_ratio_mean": "mismatch_ratio_mean",
        f"{_BEFORE}/is_ratio_max": "mismatch_is_weight_max",
        f"{_BEFORE}/clip_ratio": "clip_fraction",
        "policy/policy_entropy": "entropy",
        "policy/grad_norm": "grad_norm",
        "policy/policy_lr": "lr",
        "policy/policy_loss": "loss",
        "policy/final_loss": "loss",
        "reward/avg_raw_reward": "reward_mean",
        "generate/avg_num_tokens": "response_length_mean",
        "generate/max_num_tokens": "response_length_max",
        "async/staleness_mean": "version_lag_mean",
        "async/staleness_max": "version_lag_max",
    },
    excluded={
        f"{_BEFORE}/is_ratio_min": "0 wherever a batch has padding",
        f"{_BEFORE}/is_ratio_std": "counts padding as ratios of 0",
        "policy/response_length": "the padded width of a batch",
        "policy/policy_kl": "distance from the reference model, not off-policy drift",
        "loss/avg_kl": "distance from the reference model, not off-policy drift",
        "loss/avg_final_rewards": "rewards after penalties",
    },
    steps=("trainer/global_step",),
    step_seconds=("timing/step",),
    agreement="generator.sampling_params.logprobs=1",
)
