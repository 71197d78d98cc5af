"""Metric names of verl.

In bypass mode, `rollout_corr/*` compares the current weights with those of the rollout; it is read as `mismatch` too,
and its drift then combines the engines and the updates.
"""

from __future__ import annotations

from trmon.domain.framework_names.metric_table import MetricTable

_TRUNCATED = "computed from truncated weights, which hide outliers"

VERL = MetricTable(
    framework="verl",
    version="0.9.1",
    files=(
        "verl/trainer/ppo/metric_utils.py",
        "verl/trainer/ppo/rollout_corr_helper.py",
        "verl/trainer/ppo/core_algos.py",
        "verl/trainer/ppo/v1/trainer_base.py",
        "verl/utils/debug/metrics.py",
        "verl/utils/logger/aggregate_logger.py",
    ),
    signals={
        "rollout_corr/kl": "mismatch_kl_k1",
        "rollout_corr/k3_kl": "mismatch_kl_k3",
        "rollout_corr/chi2_token": "mismatch_chi2_token",
        "rollout_corr/chi2_seq": "mismatch_chi2_seq",
        "rollout_corr/ppl_ratio": "mismatch_ppl_ratio",
        "rollout_corr/log_ppl_diff": "mismatch_log_ppl_diff_mean",
        "rollout_corr/log_ppl_abs_diff": "mismatch_log_ppl_diff_abs_mean",
        "rollout_corr/log_ppl_diff_min": "mismatch_log_ppl_diff_min",
        "rollout_corr/log_ppl_diff_max": "mismatch_log_ppl_diff_max",
        "rollout_corr/training_ppl": "ppl_old",
        "rollout_corr/rollout_ppl": "ppl_rollout",
        "rollout_corr/rollout_rs_seq_masked_fraction": "mask_rate",
        "training/rollout_probs_diff_max": "mismatch_prob_diff_max",
        "training/rollout_probs_diff_mean": "mismatch_prob_diff_mean",
        "training/rollout_probs_diff_std": "mismatch_prob_diff_std",
        "training/rollout_actor_probs_pearson_corr": "mismatch_prob_pearson",
        "training/off_policy/trajectory_staleness_worst/mean": "version_lag_mean",
        "training/off_policy/trajectory_staleness_worst/max": "version_lag_max",
        "training/off_policy/trajectory_spans/max": "version_span_max",
        "actor/ppo_kl": "staleness_kl_k1",
        "actor/pg_clipfrac": "clip_fraction",
        "actor/grad_norm": "grad_norm",
        "actor/loss": "loss",
        "actor/pg_loss": "loss",
        "actor/lr": "lr",
        "actor/entropy": "entropy",
        "variance_proxy/proxy3_pure_noise": "grad_variance",
        "critic/score/mean": "reward_mean",
        "critic/rewards/mean": "reward_mean",
        "critic/score/min": "reward_min",
        "critic/vf_explained_var": "vf_explained_var",
        "response_length/mean": "response_length_mean",
        "response_length/max": "response_length_max",
        "response_length/clip_ratio": "length_limit_share",
    },
    linear={"training/off_policy/trajectory_spans/max": (1.0, -1.0)},
    excluded={
        "rollout_corr/rollout_is_eff_sample_size": _TRUNCATED,
        "rollout_corr/rollout_is_mean": _TRUNCATED,
        "rollout_corr/rollout_is_std": _TRUNCATED,
        "rollout_corr/rollout_is_max": "a sequence's weight where rollout_is is sequence",
        "rollout_corr/rollout_is_min": "a sequence's weight where rollout_is is sequence",
        "actor/kl_loss": "distance from the reference model, not off-policy drift",
        "actor/reward_kl_penalty": "distance from the reference model, not off-policy drift",
        "response_length_non_aborted/mean": "response_length/mean without aborted responses",
        "critic/advantages/mean": "advantages, not rewards",
    },
    steps=("training/global_step",),
    step_seconds=("timing_s/step", "perf/time_per_step"),
    agreement="actor_rollout_ref.rollout.calculate_log_probs=true",
)
