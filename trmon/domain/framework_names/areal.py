"""Metric names of AReaL's PPO actor.

`behave_*` are means over the tokens that the rejection kept. d counts as 0 where it is not finite.
"""

from __future__ import annotations

from trmon.domain.framework_names.metric_table import MetricTable

_UPDATE = "ppo_actor/update"
_KL = f"{_UPDATE}/compute_logp"
_VERSIONS = f"{_UPDATE}/version_stats"

AREAL = MetricTable(
    framework="AReaL",
    version="1.0.4",
    files=(
        "areal/trainer/ppo/actor.py",
        "areal/utils/functional/functional.py",
        "areal/utils/stats_tracker.py",
        "areal/engine/fsdp_engine.py",
        "areal/workflow/rlvr.py",
    ),
    signals={
        f"{_KL}/kl_div_direct/avg": "total_kl_k1",
        f"{_KL}/kl_div_taylor/avg": "total_kl_k2",
        f"{_KL}/kl_div_dual/avg": "total_kl_k3",
        f"{_UPDATE}/behave_approx_kl/avg": "mismatch_kl_k1",
        f"{_UPDATE}/approx_kl/avg": "staleness_kl_k1",
        f"{_UPDATE}/importance_weight/avg": "staleness_ratio_mean",
        f"{_UPDATE}/importance_weight/max": "staleness_is_weight_max",
        f"{_UPDATE}/clip_ratio/avg": "clip_fraction",
        f"{_UPDATE}/entropy/avg": "entropy",
        f"{_UPDATE}/actor_loss/avg": "loss",
        f"{_UPDATE}/grad_norm": "grad_norm",
        f"{_UPDATE}/lr": "lr",
        f"{_VERSIONS}/sample_staleness_theta_avg": "version_lag_mean",
        f"{_VERSIONS}/sample_staleness_theta_max": "version_lag_max",
        "ppo_actor/task_reward/avg": "reward_mean",
        "rollout/reward": "reward_mean",
        "ppo_actor/task_reward/min": "reward_min",
    },
    linear={
        f"{_UPDATE}/behave_approx_kl/avg": (-1.0, 0.0),
        f"{_UPDATE}/approx_kl/avg": (-1.0, 0.0),
    },
    excluded={
        f"{_UPDATE}/behave_imp_weight/avg": "computed after clamping",
        f"{_UPDATE}/behave_imp_weight/max": "computed after clamping",
        f"{_UPDATE}/rs_filtered_fraction": "depends on the bounds of the correction",
        "ppo_actor/seq_len/avg": "prompt and response together",
        "ppo_actor/no_eos_ratios/avg": "the share of sequences that are the longest of their batch",
        "ppo_actor/final_reward/avg": "rewards after the KL penalty",
        "ppo_actor/kl_rewards/avg": "distance from the reference model, not off-policy drift",
    },
    step_seconds=("timeperf/step",),
)
