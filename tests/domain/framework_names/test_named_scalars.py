"""What the names of a run's scalars are: signals, rewards by function, evaluations by set, ends of responses."""

from __future__ import annotations

import pytest

from trmon.domain.framework_names.named_scalars import named_scalars

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
