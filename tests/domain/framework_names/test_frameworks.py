"""A line of each framework as its logger writes it: which framework it is, what is read, and what is left out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from trmon.domain.framework_names.translation import ALL_TABLES, UNKNOWN_NAME, translate


@dataclass(frozen=True, kw_only=True)
class Line:
    """`read` are the signals; `left_out` are words of the reasons by name."""

    metrics: dict[str, Any]
    read: dict[str, float]
    step: int | None = None
    left_out: dict[str, str] = field(default_factory=dict)


LINES = {
    "verl": Line(
        metrics={
            "training/global_step": 59,
            "global_seqlen/mean": 18257.75,
            "actor/entropy_loss": 0.31,
            "actor/pg_loss": 0.02,
            "actor/ppo_kl": 0.001,
            "actor/kl_loss": 0.004,
            "actor/pg_clipfrac_lower": 0.0,
            "mismatch/mismatch_kl": 0.002,
            "mismatch/mismatch_k3_kl": 0.003,
            "mismatch/rollout_is_mean": 0.99,
            "critic/rewards/mean": 0.5,
            "val-core/gsm8k/reward/mean@8": 0.6,
            "val-core/gsm8k/reward/best@8/mean": 0.9,
            "timing_s/step": 131.6,
        },
        step=59,
        read={
            "entropy": 0.31,
            "loss": 0.02,
            "staleness_kl_k1": 0.001,
            "reference_kl": 0.004,
            "mismatch_kl_k1": 0.002,
            "mismatch_kl_k3": 0.003,
            "reward_mean": 0.5,
            "eval_reward": 0.6,
        },
        left_out={
            "global_seqlen/mean": "prompt and response",
            "actor/pg_clipfrac_lower": "dual clip",
            "mismatch/rollout_is_mean": "truncated",
            "timing_s/step": "duration",
        },
    ),
    "EasyR1": Line(
        metrics={
            "actor/pg_clipfrac_higher": 0.01,
            "actor/pg_clipfrac_lower": 0.0,
            "actor/entropy_loss": 0.4,
            "reward/overall": 0.7,
            "reward/format": 0.9,
            "val/reward_score": 0.6,
            "val/accuracy_reward": 0.5,
        },
        read={"clip_fraction": 0.01, "entropy": 0.4, "reward_mean": 0.7, "eval_reward": 0.6},
        left_out={"actor/pg_clipfrac_lower": "dual clip"},
    ),
    "rLLM": Line(
        metrics={
            "batch/solve_none": 32,
            "batch/solve_all": 16,
            "batch/solve_partial": 80,
            "actor/entropy_loss": 0.164,
            "critic/score/mean": 0.4,
            "response_length/clip_ratio": 0.062,
        },
        read={
            "none_solved_groups": 0.25,
            "all_solved_groups": 0.125,
            "entropy": 0.164,
            "reward_mean": 0.4,
            "length_limit_share": 0.062,
        },
        left_out={"batch/solve_partial": "other groups"},
    ),
    "Logic-RL": Line(
        metrics={"critic/kl": 0.01, "critic/score/mean": 1.2, "reward/format_error_ratio": 0.1},
        read={"reference_kl": 0.01, "reward_mean": 1.2},
        left_out={"reward/format_error_ratio": "not groups"},
    ),
    "Search-R1": Line(
        metrics={"env/number_of_valid_search": 1.2, "critic/rewards/mean": 0.3, "val/test_score/nq": 0.4},
        read={"reward_mean": 0.3, "eval_reward": 0.4},
        left_out={"env/number_of_valid_search": "turns"},
    ),
    "Trinity-RFT": Line(
        metrics={
            "rollout/accuracy/mean": 0.5,
            "rollout/format_score/mean": 0.9,
            "actor/ppo_kl": 0.001,
            "eval/gsm8k-eval/accuracy/mean@4": 0.6,
            "eval/gsm8k-eval/accuracy/best@2": 0.8,
            "experience_pipeline/group_advantages/reward_mean/mean": 0.5,
            "sample/model_version/mean": 12.0,
        },
        read={"reward_mean": 0.5, "staleness_kl_k1": 0.001, "eval_reward": 0.6},
        left_out={
            "eval/gsm8k-eval/accuracy/best@2": "best",
            "experience_pipeline/group_advantages/reward_mean/mean": "read from another name",
            "sample/model_version/mean": "count",
        },
    ),
    "ROLL": Line(
        metrics={
            "actor/clipfrac": 0.1,
            "actor/total_loss": 0.1,
            "critic/entropy/mean": 0.3,
            "critic/score/mean": 0.5,
            "token/response_length/mean": 900.0,
            "val_correct/all/mean": 0.4,
            "actor/ppo_ratio_low_clipfrac": 0.01,
        },
        read={"loss": 0.1, "entropy": 0.3, "reward_mean": 0.5, "response_length_mean": 900.0, "eval_reward": 0.4},
        left_out={"actor/clipfrac": "loss_agg_mode", "actor/ppo_ratio_low_clipfrac": "clipped or not"},
    ),
    "TRL": Line(
        metrics={
            "loss": 0.01,
            "reward": 0.4,
            "rewards/format/mean": 0.9,
            "rewards/format/std": 0.1,
            "frac_reward_zero_std": 0.2,
            "completion_length": 232.8,
            "kl": 0.0005,
            "clip_ratio/low_mean": 0.01,
            "clip_ratio/high_mean": 0.02,
            "clip_ratio/region_mean": 0.03,
            "clip_ratio/high_max": 0.05,
            "sampling/importance_sampling_ratio/mean": 1.0,
            "epoch": 0.31,
        },
        read={
            "loss": 0.01,
            "reward_mean": 0.4,
            "zero_variance_groups": 0.2,
            "response_length_mean": 232.8,
            "reference_kl": 0.0005,
            "clip_fraction_low": 0.01,
            "clip_fraction_high": 0.02,
            "clip_fraction": 0.03,
        },
        left_out={
            "clip_ratio/high_max": "process",
            "sampling/importance_sampling_ratio/mean": "after clipping",
            "epoch": "how far",
        },
    ),
    "TRL PPO": Line(  # It sums over answers and averages over padding, and has no option of GRPO.
        metrics={
            "objective/kl": 6.8,
            "objective/entropy": 114.4,
            "objective/scores": 2.36,
            "policy/approxkl_avg": 0.0027,
            "policy/clipfrac_avg": 0.0093,
            "policy/entropy_avg": 1.11,
            "val/ratio": 0.966,
            "val/num_eos_tokens": 12,
            "lr": 9.2e-6,
            "episode": 96,
        },
        read={
            "reward_mean": 2.36,
            "clip_fraction": 0.0093,
            "entropy": 1.11,
            "lr": 9.2e-6,
            "reference_kl_sum": 6.8,
            "eos_tokens": 12,
        },
        left_out={
            "objective/entropy": "sum over an answer",
            "policy/approxkl_avg": "padding",
            "val/ratio": "padding",
            "episode": "how far",
        },
    ),
    "TRL async": Line(
        metrics={"kl": 0.01, "ratio": 1.01, "training_tok/s": 900.0, "reward": 0.5, "clip_ratio/region_mean": 0.1},
        read={"total_kl_k3": 0.01, "total_ratio_mean": 1.01, "reward_mean": 0.5, "clip_fraction": 0.1},
        left_out={"training_tok/s": "throughput"},
    ),
    "open-instruct": Line(
        metrics={
            "training_step": 4,
            "objective/kl0_avg": 0.01,
            "objective/kl2_avg": 0.02,
            "objective/verifiable_reward": 5.0,
            "policy/clipfrac_avg": 0.01,
            "val/ratio": 1.001,
            "val/stop_rate": 0.75,
            "scores": 5.5,
            "debug/vllm_vs_local_logprob_diff_mean": 0.012,
            "debug/vllm_local_reverse_kl": 0.001,
            "loss/kl_avg": 0.0001,
        },
        step=4,
        read={
            "reference_kl": 0.01,
            "clip_fraction": 0.01,
            "staleness_ratio_mean": 1.001,
            "length_limit_share": 0.25,
            "reward_mean": 5.5,
            "mismatch_abs_log_ratio_mean": 0.012,
        },
        left_out={
            "objective/kl2_avg": "another estimator",
            "debug/vllm_local_reverse_kl": "weighted",
            "loss/kl_avg": "coefficient",
        },
    ),
    "LLaMA-Factory": Line(
        metrics={
            "current_steps": 10,
            "total_steps": 1287,
            "loss": -0.1994,
            "predict_loss": None,
            "reward": 0.13,
            "learning_rate": 9.9988e-06,
            "percentage": 0.78,
            "elapsed_time": "0:11:19",
            "remaining_time": "1 day, 0:06:42",
        },
        step=10,
        read={"loss": -0.1994, "reward_mean": 0.13, "lr": 9.9988e-06},
        left_out={
            "total_steps": "how far",
            "percentage": "how far",
            "elapsed_time": "how far",
            "remaining_time": "how far",
        },
    ),
    "ms-swift": Line(
        metrics={
            "loss": 1e-08,
            "reward": 0.65625,
            "rollout_correction/k3_kl": 0.001,
            "rollout_correction/ess": 0.9,
            "completions/clipped_ratio": 0.75,
            "rewards/PointwiseRM/mean": 0.65,
            "global_step/max_steps": "2/4389",
            "percentage": "0.05%",
            "memory(GiB)": 40.0,
        },
        step=2,
        read={"loss": 1e-08, "reward_mean": 0.65625, "mismatch_kl_k3": 0.001, "length_limit_share": 0.75},
        left_out={"rollout_correction/ess": "truncated", "percentage": "how far", "memory(GiB)": "count"},
    ),
    "slime": Line(
        metrics={
            "rollout/raw_reward": 0.0156,
            "rollout/rewards": 0.0,
            "rollout/zero_std/count_0": 7,
            "rollout/response_lengths": 900.0,
            "rollout/truncated": 0.1,
            "rollout/step": 3,
            "train/kl_loss": 0.0007,
            "eval/aime": 0.3,
            "eval/aime-truncated_ratio": 0.5,
            "eval/aime/response_len/mean": 900.0,
        },
        step=3,
        read={
            "reward_mean": 0.0156,
            "response_length_mean": 900.0,
            "length_limit_share": 0.1,
            "reference_kl": 0.0007,
            "eval_reward": 0.3,
        },
        left_out={
            "rollout/rewards": "normalisation",
            "rollout/zero_std/count_0": "number of all groups",
            "eval/aime-truncated_ratio": "evaluation",
            "eval/aime/response_len/mean": "evaluation",
        },
    ),
    "prime-rl": Line(
        metrics={
            "Step": 28,
            "Reward": 0.38,
            "Seq. Length": 8800,
            "Loss": -0.0038,
            "Entropy": 0.244,
            "Mismatch KL": 0.0007,
            "Grad. Norm": 0.05,
            "LR": 1e-5,
            "Max. Off-Policy Level": 2,
        },
        step=28,
        read={
            "reward_mean": 0.38,
            "loss": -0.0038,
            "entropy": 0.244,
            "total_kl_k3": 0.0007,
            "grad_norm": 0.05,
            "lr": 1e-5,
            "version_lag_max": 2,
        },
        left_out={"Seq. Length": "prompt and response"},
    ),
    "NeMo-RL": Line(
        metrics={
            "Loss": 0.01,
            "Generation KL Error": 0.0012,
            "Avg Reward": 0.4,
            "Avg Filtered Reward": 0.5,
            "Mean Generation Length": 700.0,
            "kl_penalty": 0.002,
            "validation/accuracy": 0.3,
        },
        read={
            "loss": 0.01,
            "mismatch_kl_k3": 0.0012,
            "reward_mean": 0.4,
            "response_length_mean": 700.0,
            "reference_kl": 0.002,
            "eval_reward": 0.3,
        },
        left_out={"Avg Filtered Reward": "dynamic sampling"},
    ),
    "OpenRLHF": Line(
        metrics={"vllm_kl": 0.001, "kl": 0.02, "entropy_loss": 0.3, "return": 0.1, "eval_math_pass1": 0.4},
        read={"mismatch_kl_k1": 0.001, "reference_kl": 0.02, "entropy": 0.3, "eval_reward": 0.4},
        left_out={"return": "KL penalty"},
    ),
    "LightRFT": Line(
        metrics={"rollout/reward": 0.4, "rollout/total_length": 900.0, "train/kl": 0.29, "rollout/global_step": 5},
        step=5,
        read={"reward_mean": 0.4, "reference_kl": 0.29},
        left_out={"rollout/total_length": "prompt and response"},
    ),
    "SkyRL": Line(
        metrics={
            "trainer/global_step": 3,
            "loss/avg_raw_rewards": 0.06,
            "reward/avg_pass_at_8": 0.45,
            "policy/raw_grad_norm": 0.08,
            "policy/ppo_clip_ratio": 0.01,
            "policy/policy_kl": 0.0009,
            "policy/rollout_train_prob_diff_mean": 0.01,
            "loss/avg_final_rewards": 0.05,
            "eval/all/avg_score": 0.07,
        },
        step=3,
        read={
            "reward_mean": 0.06,
            "none_solved_groups": 0.55,
            "grad_norm": 0.08,
            "clip_fraction": 0.01,
            "reference_kl": 0.0009,
            "eval_reward": 0.07,
        },
        left_out={"policy/rollout_train_prob_diff_mean": "padding", "loss/avg_final_rewards": "penalties"},
    ),
    "AReaL": Line(
        metrics={"ppo_actor/update/approx_kl/avg": -0.01, "rollout/reward": 0.4, "ppo_actor/kl_rewards/avg": 0.1},
        read={"staleness_kl_k1": 0.01, "reward_mean": 0.4},
        left_out={"ppo_actor/kl_rewards/avg": "coefficient"},
    ),
    "tinker": Line(
        metrics={
            "progress/batch": 10,
            "optim/kl_sample_train_v1": 0.05,
            "optim/kl_sample_train_v2": 0.06,
            "optim/entropy": 0.5,
            "env/all/reward/total": 0.4,
            "env/all/by_group/frac_mixed": 0.75,
            "env/all/by_group/frac_all_bad": 0.25,
            "env/all/total_ac_tokens": 5000,
            "env/all/total_episodes": 10,
            "env/all/ac_tokens_per_turn": 250.0,
            "test/env/all/reward/total": 0.3,
        },
        step=10,
        read={
            "total_kl_k1": 0.05,
            "total_kl_k2": 0.06,
            "sampled_entropy": 0.5,
            "reward_mean": 0.4,
            "zero_variance_groups": 0.25,
            "none_solved_groups": 0.25,
            "response_length_mean": 500.0,
            "eval_reward": 0.3,
        },
        left_out={"env/all/ac_tokens_per_turn": "turn"},
    ),
    "torchforge": Line(
        metrics={
            "global_step": 2,
            "rl_trainer/avg_loss": 0.1,
            "reward/evaluate_response/avg_total_reward": 0.5,
            "reward/evaluate_response/avg_MathReward_reward": 0.4,
            "buffer/sample/max_sampled_policy_age": 2,
        },
        step=2,
        read={"loss": 0.1, "reward_mean": 0.5, "version_lag_max": 2},
        left_out={"reward/evaluate_response/avg_MathReward_reward": "part of the reward"},
    ),
    "Marin": Line(
        metrics={
            "train/trainer_sampler_prob_diff_max": 0.4,
            "train/current_entropy": 0.3,
            "train/kl_penalty": 0.01,
            "train/kl_loss": 0.001,
            "train/clip_fraction": 0.1,
        },
        read={"total_prob_diff_max": 0.4, "entropy": 0.3, "reference_kl": 0.01},
        left_out={"train/kl_loss": "coefficient", "train/clip_fraction": "clipped or not"},
    ),
    "RLinf": Line(
        metrics={
            "train/actor/rollout_train_kl": 0.02,
            "train/actor/approx_kl": 0.001,
            "train/actor/policy_loss": 0.1,
            "rollout/reward_scores_traj": 0.4,
            "rollout/fraction_of_samples_properly_ended": 0.75,
            "train/actor/dual_clip_fraction": 0.0,
        },
        read={
            "mismatch_abs_log_ratio_mean": 0.02,
            "staleness_kl_k1": 0.001,
            "loss": 0.1,
            "reward_mean": 0.4,
            "length_limit_share": 0.25,
        },
        left_out={"train/actor/dual_clip_fraction": "dual clip"},
    ),
    "home-made": Line(
        metrics={"iteration": 3, "mean_reward": 0.5, "Entropy": 0.2, "entropy_loss": -0.2, "my_metric": 1.0},
        step=3,
        read={"reward_mean": 0.5, "entropy": 0.2},
        left_out={"entropy_loss": "negative in others", "my_metric": UNKNOWN_NAME},
    ),
}


@pytest.mark.parametrize("framework", LINES)
def test_a_line_of_a_framework_is_read(framework: str) -> None:
    expected = LINES[framework]
    line = translate(expected.metrics)
    assert (line.framework or "home-made") == framework
    assert line.signals == pytest.approx(expected.read)
    assert line.step == expected.step
    assert {item.name for item in line.ignored} == expected.left_out.keys()
    reasons = {item.name: item.why for item in line.ignored}
    assert [(name, why) for name, why in reasons.items() if expected.left_out[name] not in why] == []


def test_each_framework_has_a_line() -> None:
    assert LINES.keys() == {table.framework for table in ALL_TABLES}


@pytest.mark.parametrize(
    ("name", "signal"),
    [
        ("rollout_corr / kl", "mismatch_kl_k1"),
        ("rollout_corr_kl", "mismatch_kl_k1"),
        ("Rollout_corr/kl", "mismatch_kl_k1"),
        ("train/completions_mean_length", "response_length_mean"),
        ("train/grad_norm", "grad_norm"),
        ("Grad. Norm", "grad_norm"),
    ],
)
def test_names_are_the_same_in_another_case_with_other_separators_and_a_trackers_prefix(name: str, signal: str) -> None:
    assert translate({name: 0.1}).signals == {signal: 0.1}


def test_a_count_without_the_other_groups_is_not_read_as_a_share() -> None:
    line = translate({"batch/solve_none": 128, "batch/solve_all": 0, "actor/pg_loss": 0.1})
    assert line.framework == "rLLM"
    assert line.signals == {"loss": 0.1}
    assert "not all logged" in line.ignored[0].why


@pytest.mark.parametrize(
    ("framework", "name", "signal"),
    [
        ("verl", "critic/score/max", "reward_max"),
        ("verl", "critic/advantages/max", "advantage_max"),
        ("verl", "critic/advantages/min", "advantage_min"),
        ("ROLL", "critic/rewards/max", "reward_max"),
        ("open-instruct", "val/advantages_min", "advantage_min"),
        ("AReaL", "ppo_actor/task_reward/max", "reward_max"),
        ("NeMo-RL", "train/advantages/max", "advantage_max"),
        ("RLinf", "rollout/advantages_min", "advantage_min"),
    ],
)
def test_the_extremes_of_rewards_and_advantages_are_signals(framework: str, name: str, signal: str) -> None:
    table = next(table for table in ALL_TABLES if table.framework == framework)
    assert translate({name: -0.5}, table=table).signals == {signal: -0.5}
