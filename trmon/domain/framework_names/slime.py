"""Metric names of slime.

Its means are means over samples of each sample's token mean; ours weigh every token alike.
"""

from __future__ import annotations

from trmon.domain.framework_names.metric_table import MetricTable

SLIME = MetricTable(
    framework="slime",
    version="0.3.1, commit 624b824a",
    files=(
        "slime/backends/megatron_utils/loss.py",
        "slime/backends/megatron_utils/model.py",
        "slime/observability/rollout_metrics.py",
        "slime/observability/train_metric_utils.py",
        "examples/train_infer_mismatch_helper/mis.py",
    ),
    signals={
        "train/train_rollout_logprob_abs_diff": "mismatch_abs_log_ratio_mean",
        "train/mis_kl": "mismatch_kl_k1",
        "train/mis_k3_kl": "mismatch_kl_k3",
        "train/mis_chi2_token": "mismatch_chi2_token",
        "train/mis_chi2_seq": "mismatch_chi2_seq",
        "train/mis_ppl_ratio": "mismatch_ppl_ratio",
        "train/mis_log_ppl_diff": "mismatch_log_ppl_diff_mean",
        "train/mis_log_ppl_abs_diff": "mismatch_log_ppl_diff_abs_mean",
        "train/mis_training_ppl": "ppl_old",
        "train/mis_rollout_ppl": "ppl_rollout",
        "train/tis": "mismatch_ratio_mean",
        "train/ois": "staleness_ratio_mean",
        "train/ppo_kl": "staleness_kl_k1",
        "train/pg_clipfrac": "clip_fraction",
        "train/entropy_loss": "entropy",
        "train/grad_norm": "grad_norm",
        "train/loss": "loss",
        "train/lr-pg_0": "lr",
        "rollout/raw_reward": "reward_mean",
        "rollout/response_len/mean": "response_length_mean",
        "rollout/response_len/median": "response_length_median",
        "rollout/response_len/max": "response_length_max",
        "rollout/truncated_ratio": "length_limit_share",
    },
    excluded={
        "train/kl_loss": "distance from the reference model, not off-policy drift",
        "train/tis_abs": "the mean of |ratio - 1|, which no signal is",
        "train/tis_clipfrac": "depends on the bounds of the correction",
        "train/opsm_clipfrac": "depends on the bounds of the correction",
        "rollout/rewards": "rewards after normalisation",
        "rollout/log_probs": "mean over samples of log-probs, not an entropy",
        "rollout/entropy": "of the whole rollout batch before updates; train/entropy_loss is read",
    },
    steps=("rollout/step",),
    updates=("train/step",),
    step_seconds=("perf/step_time",),
    agreement="--get-mismatch-metrics",
)
