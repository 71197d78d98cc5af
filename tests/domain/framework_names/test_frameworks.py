"""The table of each framework, and a line as its logger writes it: what is read, and what is left out."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from trmon.domain.framework_names.tables import MetricTable
from trmon.domain.framework_names.translation import (
    ALL_TABLES,
    FRAMEWORKS,
    HOME_MADE_NAMES,
    SCALARS,
    UNKNOWN_NAME,
    translate,
    trmon_name,
)
from trmon.domain.signals.derived_signals import DERIVED
from trmon_client.core.signals.catalogue import SIGNALS


class Read(NamedTuple):
    """A number that is read as a signal, and that signal's value where it is another number."""

    given: Any
    signal: str
    value: float | None = None


class LeftOut(NamedTuple):
    """A value that is ignored, and words of the reason."""

    given: Any
    why: str


class Step(NamedTuple):
    """What names the step of the line, and the step where it is not the value itself."""

    given: Any
    step: int | None = None


LINES: dict[str, dict[str, Any]] = {
    "verl": {
        "training/global_step": Step(59),
        "global_seqlen/mean": LeftOut(18257.75, "prompt and response"),
        "actor/entropy_loss": Read(0.31, "entropy"),
        "actor/pg_loss": Read(0.02, "loss"),
        "actor/ppo_kl": Read(0.001, "staleness_kl_k1"),
        "actor/kl_loss": Read(0.004, "reference_kl"),
        "actor/pg_clipfrac_lower": LeftOut(0.0, "dual clip"),
        "mismatch/mismatch_kl": Read(0.002, "mismatch_kl_k1"),
        "mismatch/mismatch_k3_kl": Read(0.003, "mismatch_kl_k3"),
        "mismatch/rollout_is_mean": LeftOut(0.99, "truncated"),
        "critic/rewards/mean": Read(0.5, "reward_mean"),
        "val-core/gsm8k/reward/mean@8": Read(0.6, "eval_reward"),
        "val-core/gsm8k/reward/best@8/mean": 0.9,
        "timing_s/step": LeftOut(131.6, "duration"),
    },
    "EasyR1": {
        "actor/pg_clipfrac_higher": Read(0.01, "clip_fraction"),
        "actor/pg_clipfrac_lower": LeftOut(0.0, "dual clip"),
        "actor/entropy_loss": Read(0.4, "entropy"),
        "reward/overall": Read(0.7, "reward_mean"),
        "reward/format": 0.9,
        "val/reward_score": Read(0.6, "eval_reward"),
        "val/accuracy_reward": 0.5,
    },
    "rLLM": {
        "batch/solve_none": Read(32, "none_solved_groups", 0.25),
        "batch/solve_all": Read(16, "all_solved_groups", 0.125),
        "batch/solve_partial": LeftOut(80, "other groups"),
        "actor/entropy_loss": Read(0.164, "entropy"),
        "critic/score/mean": Read(0.4, "reward_mean"),
        "response_length/clip_ratio": Read(0.062, "length_limit_share"),
    },
    "Logic-RL": {
        "critic/kl": Read(0.01, "reference_kl"),
        "critic/score/mean": Read(1.2, "reward_mean"),
        "reward/format_error_ratio": LeftOut(0.1, "not groups"),
    },
    "Search-R1": {
        "env/number_of_valid_search": LeftOut(1.2, "turns"),
        "critic/rewards/mean": Read(0.3, "reward_mean"),
        "val/test_score/nq": Read(0.4, "eval_reward"),
    },
    "Trinity-RFT": {
        "rollout/accuracy/mean": Read(0.5, "reward_mean"),
        "rollout/format_score/mean": 0.9,
        "actor/ppo_kl": Read(0.001, "staleness_kl_k1"),
        "eval/gsm8k-eval/accuracy/mean@4": Read(0.6, "eval_reward"),
        "eval/gsm8k-eval/accuracy/best@2": LeftOut(0.8, "best"),
        "experience_pipeline/group_advantages/reward_mean/mean": LeftOut(0.5, "read from another name"),
        "sample/model_version/mean": LeftOut(12.0, "count"),
    },
    "ROLL": {
        "actor/clipfrac": LeftOut(0.1, "loss_agg_mode"),
        "actor/total_loss": Read(0.1, "loss"),
        "critic/entropy/mean": Read(0.3, "entropy"),
        "critic/score/mean": Read(0.5, "reward_mean"),
        "token/response_length/mean": Read(900.0, "response_length_mean"),
        "val_correct/all/mean": Read(0.4, "eval_reward"),
        "actor/ppo_ratio_low_clipfrac": LeftOut(0.01, "clipped or not"),
    },
    "TRL": {
        "loss": Read(0.01, "loss"),
        "reward": Read(0.4, "reward_mean"),
        "rewards/format/mean": 0.9,
        "rewards/format/std": 0.1,
        "frac_reward_zero_std": Read(0.2, "zero_variance_groups"),
        "completion_length": Read(232.8, "response_length_mean"),
        "kl": Read(0.0005, "reference_kl"),
        "clip_ratio/low_mean": Read(0.01, "clip_fraction_low"),
        "clip_ratio/high_mean": Read(0.02, "clip_fraction_high"),
        "clip_ratio/region_mean": Read(0.03, "clip_fraction"),
        "clip_ratio/high_max": LeftOut(0.05, "process"),
        "sampling/importance_sampling_ratio/mean": LeftOut(1.0, "after clipping"),
        "epoch": LeftOut(0.31, "how far"),
    },
    "TRL PPO": {  # It sums over answers and averages over padding, and has no option of GRPO.
        "objective/kl": Read(6.8, "reference_kl_sum"),
        "objective/entropy": LeftOut(114.4, "sum over an answer"),
        "objective/scores": Read(2.36, "reward_mean"),
        "policy/approxkl_avg": LeftOut(0.0027, "padding"),
        "policy/clipfrac_avg": Read(0.0093, "clip_fraction"),
        "policy/entropy_avg": Read(1.11, "entropy"),
        "val/ratio": LeftOut(0.966, "padding"),
        "val/num_eos_tokens": Read(12, "eos_tokens"),
        "lr": Read(9.2e-06, "lr"),
        "episode": LeftOut(96, "how far"),
    },
    "TRL async": {
        "kl": Read(0.01, "total_kl_k3"),
        "ratio": Read(1.01, "total_ratio_mean"),
        "training_tok/s": LeftOut(900.0, "throughput"),
        "reward": Read(0.5, "reward_mean"),
        "clip_ratio/region_mean": Read(0.1, "clip_fraction"),
    },
    "open-instruct": {
        "training_step": Step(4),
        "objective/kl0_avg": Read(0.01, "reference_kl"),
        "objective/kl2_avg": LeftOut(0.02, "another estimator"),
        "objective/verifiable_reward": 5.0,
        "policy/clipfrac_avg": Read(0.01, "clip_fraction"),
        "val/ratio": Read(1.001, "staleness_ratio_mean"),
        "val/stop_rate": Read(0.75, "length_limit_share", 0.25),
        "scores": Read(5.5, "reward_mean"),
        "debug/vllm_vs_local_logprob_diff_mean": Read(0.012, "mismatch_abs_log_ratio_mean"),
        "debug/vllm_local_reverse_kl": LeftOut(0.001, "weighted"),
        "loss/kl_avg": LeftOut(0.0001, "coefficient"),
    },
    "LLaMA-Factory": {
        "current_steps": Step(10),
        "total_steps": LeftOut(1287, "how far"),
        "loss": Read(-0.1994, "loss"),
        "predict_loss": None,
        "reward": Read(0.13, "reward_mean"),
        "learning_rate": Read(9.9988e-06, "lr"),
        "percentage": LeftOut(0.78, "how far"),
        "elapsed_time": LeftOut("0:11:19", "how far"),
        "remaining_time": LeftOut("1 day, 0:06:42", "how far"),
    },
    "ms-swift": {
        "loss": Read(1e-08, "loss"),
        "reward": Read(0.65625, "reward_mean"),
        "rollout_correction/k3_kl": Read(0.001, "mismatch_kl_k3"),
        "rollout_correction/ess": LeftOut(0.9, "truncated"),
        "completions/clipped_ratio": Read(0.75, "length_limit_share"),
        "rewards/PointwiseRM/mean": 0.65,
        "global_step/max_steps": Step("2/4389", 2),
        "percentage": LeftOut("0.05%", "how far"),
        "memory(GiB)": LeftOut(40.0, "count"),
    },
    "slime": {
        "rollout/raw_reward": Read(0.0156, "reward_mean"),
        "rollout/rewards": LeftOut(0.0, "normalisation"),
        "rollout/zero_std/count_0": LeftOut(7, "number of all groups"),
        "rollout/response_lengths": Read(900.0, "response_length_mean"),
        "rollout/truncated": Read(0.1, "length_limit_share"),
        "rollout/step": Step(3),
        "train/kl_loss": Read(0.0007, "reference_kl"),
        "eval/aime": Read(0.3, "eval_reward"),
        "eval/aime-truncated_ratio": LeftOut(0.5, "evaluation"),
        "eval/aime/response_len/mean": LeftOut(900.0, "evaluation"),
    },
    "prime-rl": {
        "Step": Step(28),
        "Reward": Read(0.38, "reward_mean"),
        "Seq. Length": LeftOut(8800, "prompt and response"),
        "Loss": Read(-0.0038, "loss"),
        "Entropy": Read(0.244, "entropy"),
        "Mismatch KL": Read(0.0007, "total_kl_k3"),
        "Grad. Norm": Read(0.05, "grad_norm"),
        "LR": Read(1e-05, "lr"),
        "Max. Off-Policy Level": Read(2, "version_lag_max"),
    },
    "NeMo-RL": {
        "Loss": Read(0.01, "loss"),
        "Generation KL Error": Read(0.0012, "mismatch_kl_k3"),
        "Avg Reward": Read(0.4, "reward_mean"),
        "Avg Filtered Reward": LeftOut(0.5, "dynamic sampling"),
        "Mean Generation Length": Read(700.0, "response_length_mean"),
        "kl_penalty": Read(0.002, "reference_kl"),
        "validation/accuracy": Read(0.3, "eval_reward"),
    },
    "OpenRLHF": {
        "vllm_kl": Read(0.001, "mismatch_kl_k1"),
        "kl": Read(0.02, "reference_kl"),
        "entropy_loss": Read(0.3, "entropy"),
        "return": LeftOut(0.1, "KL penalty"),
        "eval_math_pass1": Read(0.4, "eval_reward"),
    },
    "LightRFT": {
        "rollout/reward": Read(0.4, "reward_mean"),
        "rollout/total_length": LeftOut(900.0, "prompt and response"),
        "train/kl": Read(0.29, "reference_kl"),
        "rollout/global_step": Step(5),
    },
    "SkyRL": {
        "trainer/global_step": Step(3),
        "loss/avg_raw_rewards": Read(0.06, "reward_mean"),
        "reward/avg_pass_at_8": Read(0.45, "none_solved_groups", 0.55),
        "policy/raw_grad_norm": Read(0.08, "grad_norm"),
        "policy/ppo_clip_ratio": Read(0.01, "clip_fraction"),
        "policy/policy_kl": Read(0.0009, "reference_kl"),
        "policy/rollout_train_prob_diff_mean": LeftOut(0.01, "padding"),
        "loss/avg_final_rewards": LeftOut(0.05, "penalties"),
        "eval/all/avg_score": Read(0.07, "eval_reward"),
    },
    "AReaL": {
        "ppo_actor/update/approx_kl/avg": Read(-0.01, "staleness_kl_k1", 0.01),
        "rollout/reward": Read(0.4, "reward_mean"),
        "ppo_actor/kl_rewards/avg": LeftOut(0.1, "coefficient"),
    },
    "tinker": {
        "progress/batch": Step(10),
        "optim/kl_sample_train_v1": Read(0.05, "total_kl_k1"),
        "optim/kl_sample_train_v2": Read(0.06, "total_kl_k2"),
        "optim/entropy": Read(0.5, "sampled_entropy"),
        "env/all/reward/total": Read(0.4, "reward_mean"),
        "env/all/by_group/frac_mixed": Read(0.75, "zero_variance_groups", 0.25),
        "env/all/by_group/frac_all_bad": Read(0.25, "none_solved_groups"),
        "env/all/total_ac_tokens": Read(5000, "response_length_mean", 500.0),
        "env/all/total_episodes": 10,
        "env/all/ac_tokens_per_turn": LeftOut(250.0, "turn"),
        "test/env/all/reward/total": Read(0.3, "eval_reward"),
    },
    "torchforge": {
        "global_step": Step(2),
        "rl_trainer/avg_loss": Read(0.1, "loss"),
        "reward/evaluate_response/avg_total_reward": Read(0.5, "reward_mean"),
        "reward/evaluate_response/avg_MathReward_reward": LeftOut(0.4, "part of the reward"),
        "buffer/sample/max_sampled_policy_age": Read(2, "version_lag_max"),
    },
    "Marin": {
        "train/trainer_sampler_prob_diff_max": Read(0.4, "total_prob_diff_max"),
        "train/current_entropy": Read(0.3, "entropy"),
        "train/kl_penalty": Read(0.01, "reference_kl"),
        "train/kl_loss": LeftOut(0.001, "coefficient"),
        "train/clip_fraction": LeftOut(0.1, "clipped or not"),
    },
    "RLinf": {
        "train/actor/rollout_train_kl": Read(0.02, "mismatch_abs_log_ratio_mean"),
        "train/actor/approx_kl": Read(0.001, "staleness_kl_k1"),
        "train/actor/policy_loss": Read(0.1, "loss"),
        "rollout/reward_scores_traj": Read(0.4, "reward_mean"),
        "rollout/fraction_of_samples_properly_ended": Read(0.75, "length_limit_share", 0.25),
        "train/actor/dual_clip_fraction": LeftOut(0.0, "dual clip"),
    },
    "home-made": {
        "iteration": Step(3),
        "mean_reward": Read(0.5, "reward_mean"),
        "Entropy": Read(0.2, "entropy"),
        "entropy_loss": LeftOut(-0.2, "negative in others"),
        "my_metric": LeftOut(1.0, UNKNOWN_NAME),
    },
}
"""The numbers of a line by name; those without more are parts of a metric, which keep their names."""


@pytest.mark.parametrize("framework", LINES)
def test_a_line_of_a_framework_is_read(framework: str) -> None:
    def entries(kind: type[tuple[Any, ...]]) -> dict[str, Any]:
        return {name: entry for name, entry in LINES[framework].items() if isinstance(entry, kind)}

    line = translate({name: getattr(entry, "given", entry) for name, entry in LINES[framework].items()})
    assert (line.framework or "home-made") == framework
    read, left_out, steps = entries(Read), entries(LeftOut), entries(Step)
    assert line.names == {entry.signal: name for name, entry in read.items()}
    values = {entry.signal: entry.given if entry.value is None else entry.value for entry in read.values()}
    assert line.signals == pytest.approx(values)
    assert line.step == next((entry.given if entry.step is None else entry.step for entry in steps.values()), None)
    assert {item.name for item in line.ignored} == left_out.keys()
    assert [item for item in line.ignored if left_out[item.name].why not in item.why] == []


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


PARTIAL = ("Marin", "OpenRLHF", "LightRFT", "tinker", "torchforge")
"""Frameworks that do not log all of them, or not under a name of their own."""
EACH_TABLE = pytest.mark.parametrize("table", FRAMEWORKS, ids=lambda table: table.framework)


@EACH_TABLE
def test_every_name_stands_for_a_signal_of_ours(table: MetricTable) -> None:
    assert {meaning.signal for meaning in table.signals.values()} <= SIGNALS.keys() | DERIVED.keys() | set(SCALARS)
    assert not table.signals.keys() & table.left_out.keys()


@EACH_TABLE
def test_a_table_says_of_which_release_and_files_it_is(table: MetricTable) -> None:
    assert table.files
    for version, files in table.files.items():
        assert any(map(str.isdigit, version))
        assert files


def test_no_framework_is_told_the_option_of_its_base() -> None:
    options = {table.framework: table.agreement for table in FRAMEWORKS}
    assert options["verl"] == options["rLLM"] != ""  # rLLM trains with verl and takes its options
    assert {options[name] for name in ("ROLL", "EasyR1", "Search-R1", "open-instruct", "LLaMA-Factory")} == {""}


@EACH_TABLE
def test_a_log_with_all_names_of_a_framework_is_recognised_as_its(table: MetricTable) -> None:
    parts = [name for meaning in table.signals.values() for name in meaning.share_of]
    names = [name.replace("*", "1") for name in (*table.signals, *table.left_out, *table.steps, *parts)]
    line = translate(dict.fromkeys(names, 0.5))
    assert line.framework == table.framework
    assert set(line.signals) == {meaning.signal for meaning in table.signals.values()}


def test_frameworks_have_the_loss_the_gradient_and_the_reward() -> None:
    for table in FRAMEWORKS:
        if table.framework not in PARTIAL:
            read = {meaning.signal for meaning in table.signals.values()}
            assert {"loss", "grad_norm", "reward_mean", "lr", "entropy"} <= read, table.framework


def test_a_name_is_read_without_its_framework_only_as_all_frameworks_mean_it() -> None:
    for name in sorted({name for table in FRAMEWORKS for name in table.signals if "*" not in name}):
        knowing = [table for table in FRAMEWORKS if name in {*table.signals, *table.left_out}]
        bases = {table.framework for table in knowing}
        meanings = {table.signals.get(name) for table in knowing if table.base not in bases}
        line = translate({name: 0.5}, table=None)
        is_decided = trmon_name(name) is not None or HOME_MADE_NAMES.name_in_table(name) is not None
        if not is_decided and len(meanings) > 1:
            assert line.signals == {}, name
            assert "depends on the framework: " in line.ignored[0].why
        elif not is_decided:
            assert set(line.signals) <= {meaning.signal for meaning in meanings if meaning is not None}, name
