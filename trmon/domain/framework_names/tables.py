"""The metric names of each framework, and the signals of trmon that are the same number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MetricTable:
    """The metric names of one release of a framework, read from its sources.

    Of several names of one signal the first in the table is read. `linear` has the factor and the offset of names whose
    number is factor x signal + offset in the framework's convention: signal = factor x value + offset. `prefixes` are
    what the framework or its tracker may put before a name; `step_seconds` are names of the duration of a step;
    `updates` are names of a count of updates where a step may have several; `agreement` is the option that makes the
    framework log how far its engines agree, empty if it always does.
    """

    framework: str
    version: str
    files: tuple[str, ...]
    signals: Mapping[str, str]
    excluded: Mapping[str, str] = field(default_factory=dict)
    linear: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    step_seconds: tuple[str, ...] = ()
    updates: tuple[str, ...] = ()
    agreement: str = ""

    def name_in_table(self, name: str) -> str | None:
        """Return the name as the table has it, without a prefix of a tracker; None if the table lacks it."""
        for known in (name, *(name.removeprefix(prefix) for prefix in self.prefixes)):
            if known in self.signals or known in self.excluded:
                return known
        return None


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
