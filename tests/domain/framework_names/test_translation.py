"""Log lines of other frameworks: what of them is read, what a scalar's name is, and what the user says of others."""

from __future__ import annotations

import math
from typing import Any

import pytest

from trmon.domain.errors import InvalidInput
from trmon.domain.framework_names.named_scalars import named_scalars
from trmon.domain.framework_names.translation import canonical_value, recognise, signals_of_scalars, translate
from trmon.domain.framework_names.user_names import nearest_names, parse_mapped


def test_a_line_is_read_under_our_names() -> None:
    line = translate(
        {"training/global_step": 7, "rollout_corr/kl": 0.1, "clip_ratio/region_mean": 0.2, "tv": 0.3, "mask_rate": None}
    )
    assert line.step == 7
    assert line.ignored == ()
    assert line.signals == {"mismatch_kl_k1": 0.1, "clip_fraction": 0.2, "mismatch_tv": 0.3}
    assert line.names == {
        "mismatch_kl_k1": "rollout_corr/kl",
        "clip_fraction": "clip_ratio/region_mean",
        "mismatch_tv": "tv",
    }


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("my_loop/something", 3.0, "unknown name"),
        ("sampling/importance_sampling_ratio/mean", 1.0, "after clipping"),
        ("rollout_corr/kl", "high", "not a number"),
        ("rollout_corr/kl", True, "not a number"),
        ("rollout_corr/kl", [0.1], "not a number"),
    ],
)
def test_what_is_not_read_is_named_with_the_reason(name: str, value: object, why: str) -> None:
    line = translate({name: value})
    assert not line.signals
    assert [(ignored.name, why in ignored.why) for ignored in line.ignored] == [(name, True)]


ASYNC_KL = {"kl": 0.1, "training_tok/s": 900.0, "weight_sync_time_s": 2.0}


@pytest.mark.parametrize(
    ("metrics", "signals"),
    [
        pytest.param({"rollout_corr/k3_kl": "inf"}, {"mismatch_kl_k3": math.inf}, id="infinity is a number"),
        pytest.param({"kl": 0.1, "reward": 0.5}, {"reward_mean": 0.5, "reference_kl": 0.1}, id="a KL by its company"),
        pytest.param(ASYNC_KL, {"total_kl_k3": 0.1}, id="and by its framework"),
        pytest.param({"ppo_actor/update/behave_approx_kl/avg": -0.02}, {"mismatch_kl_k1": 0.02}, id="another sign"),
        pytest.param({"training/off_policy/trajectory_spans/max": 1.0}, {"version_span_max": 0.0}, id="another origin"),
    ],
)
def test_a_number_is_the_signal_that_its_framework_means(metrics: dict[str, Any], signals: dict[str, float]) -> None:
    assert translate(metrics).signals == signals


def test_a_name_that_frameworks_disagree_on_is_read_only_where_the_framework_is_recognised() -> None:
    line = translate({"batch/solve_none": 0.25})
    assert line.signals == {}
    assert line.ignored[0].why == "its meaning depends on the framework: rLLM or prime-rl"
    assert translate({"batch/solve_none": 0.25, "mismatch_kl/mean": 0.01}).signals["none_solved_groups"] == 0.25


def test_parts_of_a_metric_keep_their_names() -> None:
    line = translate({"rewards/format/mean": 0.1, "completions/mean_length": 9.0})
    assert line.others == {"rewards/format/mean": 0.1}
    assert line.ignored == ()


@pytest.mark.parametrize(
    ("metrics", "framework"),
    [
        ({"train/loss": 0.1, "train/reward": 0.4, "train/completions/mean_length": 9.0}, "TRL"),
        ({"train/train_rollout_logprob_abs_diff": 0.01, "train/pg_clipfrac": 0.0, "train/loss": 0.0}, "slime"),
        ({"mismatch_kl/all/mean": 1e-3, "optim/lr": 1e-6, "step": 3}, "prime-rl"),
        ({"kl_k3": 1e-3, "grad_norm": 0.2}, None),
        ({"loss": 0.1, "reward": 0.5, "lr": 1e-6, "grad_norm": 0.2, "entropy": 0.3, "kl": 0.1}, None),
        ({"loss": 0.1, "reward": 0.5, "completion_length": 90.0}, None),
        ({"reward_std": 0.1, "completion_length": 9.0, "rewards/format": 1.0, "rewards/hint": 0.7, "kl": 0.1}, "TRL"),
        ({"reward": 0.5, "reward_std": 0.1, "completion_length": 90.0, "Training Loss": 0.1}, "TRL"),
    ],
)
def test_the_framework_is_recognised_by_its_names(metrics: dict[str, float], framework: str | None) -> None:
    assert translate(metrics).framework == framework


def test_of_two_names_of_a_signal_the_first_of_the_table_is_read() -> None:
    line = translate({"critic/rewards/mean": 0.1, "critic/score/mean": 0.7})
    assert line.signals == {"reward_mean": 0.7}
    assert [(item.name, item.why) for item in line.ignored] == [
        ("critic/rewards/mean", "reward_mean is read from another name")
    ]


@pytest.mark.parametrize("value", [math.nan, "nan", math.inf, "-inf"])
def test_a_metric_that_is_not_finite_is_named(value: object) -> None:
    assert translate({"actor/grad_norm": value, "critic/score/mean": 0.5}).nonfinite == ("actor/grad_norm",)
    assert translate({"actor/kl_loss": value, "critic/score/mean": 0.5}).nonfinite == ("actor/kl_loss",)


def test_null_is_not_logged() -> None:
    line = translate({"actor/grad_norm": None, "critic/score/mean": 0.5, "other": None})
    assert (line.signals, line.nonfinite, line.ignored) == ({"reward_mean": 0.5}, (), ())


def test_a_correlation_and_a_signal_of_ours_may_be_nan() -> None:
    line = translate({"training/rollout_actor_probs_pearson_corr": math.nan, "mask_rate": None, "kl_k3": math.nan})
    assert line.nonfinite == ()
    assert translate({"grad_norm": math.nan, "reward": 0.5}).nonfinite == ("grad_norm",)


@pytest.mark.parametrize(
    ("metrics", "step"),
    [
        ({"iteration": "5/3766", "loss": 0.1}, 5),
        ({"train_step": 50, "kl": 0.29}, 50),
        ({"update": 6, "reward": 0.1}, 6),
        ({"_step": 4, "reward": 0.1}, 4),
        ({"step": "7", "reward": 0.1}, 7),
        ({"step": 7.5, "reward": 0.1}, None),
        ({"step": 1e300, "reward": 0.1}, None),
        ({"reward": 0.1}, None),
    ],
)
def test_the_step_of_a_line_is_what_it_names(metrics: dict[str, object], step: int | None) -> None:
    assert translate(metrics).step == step


def test_the_duration_of_a_step_is_read_under_the_names_of_the_framework() -> None:
    assert translate({"actor/lr": 1e-6, "timing_s/step": 12.5}).step_seconds == 12.5
    assert math.isnan(translate({"kl_k3": 1e-6}).step_seconds)


@pytest.mark.parametrize(
    ("scalars", "signals"),
    [
        ({"critic/score/mean": 0.5, "response_length/clip_ratio": 0.3, "perf/mfu": 0.4},
         {"reward_mean": 0.5, "length_limit_share": 0.3}),
        ({"reward": 0.5, "frac_reward_zero_std": 0.1, "kl": 0.2},
         {"reward_mean": 0.5, "zero_variance_groups": 0.1, "reference_kl": 0.2}),
        ({"batch/solve_none": 30.0, "batch/solve_all": 10.0, "batch/solve_partial": 40.0},
         {"none_solved_groups": 0.375, "all_solved_groups": 0.125}),
        ({"batch/solve_none": 0.0, "batch/solve_all": 0.0, "batch/solve_partial": 0.0}, {}),
        ({"mean_reward": 0.5, "length": 90.0}, {"reward_mean": 0.5, "response_length_mean": 90.0}),
        ({"reward_mean": 0.5, "reward": 0.1}, {"reward_mean": 0.5}),
        ({"throughput": 1.0}, {}),
        ({}, {}),
    ],
)  # fmt: skip
def test_scalars_under_any_known_name_are_signals(scalars: dict[str, float], signals: dict[str, float]) -> None:
    assert signals_of_scalars(scalars) == signals


def test_a_measured_signal_precedes_a_scalar_and_the_canonical_name_precedes_another() -> None:
    scalars = {"reward": 0.1, "reward_mean": 0.2}
    assert canonical_value("reward_mean", signals={"reward_mean": 0.3}, scalars=scalars) == 0.3
    assert canonical_value("reward_mean", signals={"reward_mean": math.nan}, scalars=scalars) == 0.2
    assert canonical_value("reward_mean", signals={}, scalars={"reward": 0.1}) == 0.1


def test_what_was_not_sent_is_nan_and_a_sent_nan_stays_one() -> None:
    assert math.isnan(canonical_value("entropy", signals={}, scalars={"lr": 1.0}))
    assert math.isnan(canonical_value("loss", signals={}, scalars={"loss": math.nan, "train_loss": 1.0}))


def test_a_log_of_trmons_own_names_is_no_frameworks() -> None:
    own = ["reward_mean", "reward_std", "response_length_mean", "response_length_max", "mismatch_kl_k3", "grad_norm"]
    assert recognise(own) is None
    assert recognise(["reward/mean", "reward/all_correct_ratio"]) is not None


TRL = ("loss", "frac_reward_zero_std", "completions/mean_length", "eval_reward", "entropy")
VERL = ("actor/pg_loss", "critic/score/mean", "training/global_step")
RLLM = ("batch/solve_none", "batch/solve_all", "batch/solve_partial")
REWARD, EVALUATION, FINISH, SIGNAL = ("reward", "evaluation", "finish", "signal")

Meaning = tuple[str, str, str | None] | None


@pytest.mark.parametrize(
    ("beside", "name", "meaning"),
    [
        (TRL, "rewards/accuracy_reward/mean", (REWARD, "accuracy_reward", None)),
        (TRL, "rewards/a_new_one_of_today/mean", (REWARD, "a_new_one_of_today", None)),
        (TRL, "train/rewards/tool_reward", (REWARD, "tool_reward", None)),
        (TRL, "rewards/accuracy_reward/std", None),
        (TRL, "eval_rewards/accuracy_reward/mean", (EVALUATION, "accuracy_reward", None)),
        (TRL, "eval_completions/mean_length", (EVALUATION, "evaluation", "response_length_mean")),
        (TRL, "eval_entropy", (EVALUATION, "evaluation", "entropy")),
        (TRL, "eval_runtime", None),
        (TRL, "kl", (SIGNAL, "kl", "reference_kl")),
        (TRL, "eval_reward", None),
        (TRL, "total_kl_k3", None),
        (TRL, "nothing_known", None),
        (VERL, "val-core/openai/gsm8k/acc/mean@4", (EVALUATION, "openai/gsm8k/acc/mean@4", None)),
        (VERL, "val-core/openai/gsm8k/acc/best@4/mean", (EVALUATION, "openai/gsm8k/acc/best@4", None)),
        (VERL, "val-core/openai/gsm8k/acc/best@4/std", None),
        (VERL, "val-aux/num_turns/mean", None),
        (VERL, "actor/grad_norm", (SIGNAL, "actor/grad_norm", "grad_norm")),
        (VERL, "response/aborted_ratio", (SIGNAL, "response/aborted_ratio", "finish_abort_share")),
        (RLLM, "batch/termination_reason/max_turns", (FINISH, "max_turns", None)),
        ((), "reward/format", (REWARD, "format", None)),
        (("objective/kl_avg", "val/sequence_lengths"), "objective/math_reward", (REWARD, "math", None)),
    ],
)
def test_a_name_is_what_the_table_of_its_framework_says(beside: tuple[str, ...], name: str, meaning: Meaning) -> None:
    found = {scalar.name: (scalar.part, scalar.words, scalar.signal) for scalar in named_scalars((*beside, name))}
    assert found.get(name) == meaning


def test_a_number_that_is_no_signal_as_it_is_has_no_chart_of_one() -> None:
    """open-instruct logs the share that stopped, of which trmon has the complement, and rLLM counts."""
    names = ("val/stop_rate", "objective/kl_avg", "val/sequence_lengths", *RLLM)
    assert not {scalar.name for scalar in named_scalars(names)} & {"val/stop_rate", *RLLM}


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("mean_rewards", "mean_reward"),
        ("policy/entropy", "policy_entropy"),
        ("critic/score/avg", "critic/score/mean"),
        ("kl_k33", "kl_k3"),
    ],
)
def test_names_that_resemble_a_known_one_get_it_as_a_suggestion(name: str, nearest: str) -> None:
    assert nearest in nearest_names(name)


def test_a_name_that_resembles_none_gets_no_suggestion() -> None:
    assert nearest_names("zzzzzzqqqq") == ()


def test_lines_map_names_to_signals() -> None:
    lines = ["# our loop", "", "my_reward = reward_mean", "kl=old=kl_k3"]
    mapped = parse_mapped(lines, source="map.txt")
    assert mapped == {"my_reward": "reward_mean", "kl=old": "mismatch_kl_k3"}
    assert translate({"my_reward": 0.5, "reward": 0.1, "kl=old": "0.2"}, mapped=mapped).signals == {
        "reward_mean": 0.5,
        "mismatch_kl_k3": 0.2,
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("my_reward", "expected NAME=SIGNAL"),
        ("=reward_mean", "expected NAME=SIGNAL"),
        ("my_reward=rewardmean", "no signal 'rewardmean'; did you mean reward_mean"),
        ("my_reward=zzz", "no signal 'zzz'"),
        ("twice=loss\ntwice=entropy", "mapped to loss and to entropy"),
    ],
)
def test_a_line_that_maps_nothing_is_answered_with_what_is_wrong(line: str, why: str) -> None:
    with pytest.raises(InvalidInput, match="--map") as raised:
        parse_mapped(line.split("\n"), source="--map")
    assert why in str(raised.value)


def test_what_the_user_says_precedes_what_a_table_says() -> None:
    line = translate({"critic/score/mean": 0.5, "actor/grad_norm": 0.1}, mapped={"critic/score/mean": "eval_reward"})
    assert line.signals == {"eval_reward": 0.5, "grad_norm": 0.1}
