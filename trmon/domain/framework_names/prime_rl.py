"""Metric names of prime-rl: of its trainer and of its orchestrator, whose lines have the step in common."""

from __future__ import annotations

from trmon.domain.framework_names.metric_table import MetricTable

PRIME_RL = MetricTable(
    framework="prime-rl",
    version="0.8.1.dev67, commit 559b4477",
    files=(
        "src/prime_rl/trainer/rl/train.py",
        "src/prime_rl/trainer/rl/loss.py",
        "src/prime_rl/orchestrator/orchestrator.py",
        "src/prime_rl/orchestrator/metrics.py",
        "src/prime_rl/monitors/file.py",
    ),
    signals={
        "mismatch_kl/all/mean": "total_kl_k3",
        "entropy/all/mean": "entropy",
        "loss/mean": "loss",
        "optim/grad_norm": "grad_norm",
        "optim/lr": "lr",
        "off_policy/mean": "version_lag_mean",
        "off_policy/max": "version_lag_max",
        "train/agg/effective/reward/mean": "reward_mean",
        "train/agg/all/reward/mean": "reward_mean",
        "train/agg/effective/num_output_tokens/mean": "response_length_mean",
        "train/agg/all/num_output_tokens/mean": "response_length_mean",
        "train/agg/effective/num_output_tokens/max": "response_length_max",
        "train/agg/effective/is_truncated/mean": "length_limit_share",
        "train/agg/all/is_truncated/mean": "length_limit_share",
        "train/agg/all/solved_all": "all_solved_groups",
        "train/agg/all/solved_none": "none_solved_groups",
    },
    excluded={
        "masked_mismatch_kl/mean": "of masked tokens only",
        "unmasked_mismatch_kl/mean": "of the tokens that remain after masking",
        "is_masked/mean": "a share of tokens; mask_rate is one of sequences",
        "ref_kl/mean": "distance from the reference model, not off-policy drift",
        "kl_ent_ratio/mean": "the quotient of two other metrics",
    },
    steps=("step",),
    step_seconds=("time/step",),
)
