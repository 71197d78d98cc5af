"""Metric names of OpenRLHF's PPO trainer."""

from __future__ import annotations

from trmon.domain.framework_names.metric_table import MetricTable

OPENRLHF = MetricTable(
    framework="OpenRLHF",
    version="0.11.2",
    files=(
        "openrlhf/models/loss.py",
        "openrlhf/trainer/ray/ppo_actor.py",
        "openrlhf/trainer/ppo_trainer.py",
        "openrlhf/trainer/ppo_utils/samples_generator.py",
        "openrlhf/utils/logging_utils.py",
    ),
    signals={
        "vllm_kl": "mismatch_kl_k1",
        "ppo_kl": "staleness_kl_k1",
        "ppo_clip_ratio": "clip_fraction",
        "actor_grad_norm": "grad_norm",
        "actor_lr": "lr",
        "policy_loss": "loss",
        "entropy_loss": "entropy",
        "reward": "reward_mean",
        "response_length": "response_length_mean",
        "truncated": "length_limit_share",
        "response_clip_ratio": "length_limit_share",
    },
    excluded={
        "kl": "in OpenRLHF, distance from the reference model, not off-policy drift",
        "logprobs_diff": "distance from the reference model, not off-policy drift",
        "is_filter_ratio": "depends on the bounds of the correction",
        "return": "rewards after the KL penalty",
        "group_reward_std": "the mean of the groups' deviations, not one over sequences",
    },
    prefixes=("train/",),
    steps=("train/global_step",),
    step_seconds=("timing/step_total",),
    agreement="--algo.advantage.is_correction_level token",
)
