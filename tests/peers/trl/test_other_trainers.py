"""Trainers of TRL that are not as expected, in real training: they report what they log, and training continues."""

from __future__ import annotations

import functools
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2ForSequenceClassification

from tests.peers.trl import tiny
from tests.peers.trl.conftest import Received
from trmon_client.core import wire
from trmon_client.integrations.trl import attach


class OtherParametersTrainer(tiny.SamplingTrainer):
    """A trainer whose loss takes other parameters, and that has no `_calculate_rewards` to wrap."""

    _calculate_rewards = None

    def _compute_loss(self, batch: Any, policy: Any) -> Any:
        raise NotImplementedError


def passing_on(method: Any) -> Any:
    """Return a decorated method, as a tracer or a timer makes it."""

    @functools.wraps(method)
    def decorated(*args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return decorated


class VariadicTrainer(tiny.SamplingTrainer):
    """A trainer whose overrides pass on whatever they are called with."""

    def _generate_and_score_completions(self, *args: Any, **kwargs: Any) -> Any:
        return super()._generate_and_score_completions(*args, **kwargs)

    def _compute_loss(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        return super()._compute_loss(model, *args, **kwargs)

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        return super()._get_per_token_logps_and_entropies(*args, **kwargs)

    @passing_on
    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids_list: Any) -> Any:
        return super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)

    def log(self, *args: Any, **kwargs: Any) -> None:
        super().log(*args, **kwargs)


class LengtheningTrainer(tiny.SamplingTrainer):
    """A trainer whose sampler's log-probs are longer than the completions."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        rollouts = super()._generate_and_score_completions(inputs)
        mu = rollouts["sampling_per_token_logps"]
        return {**rollouts, "sampling_per_token_logps": torch.cat([mu, mu], dim=1)}


class LigerTrainer(tiny.SamplingTrainer):
    """A trainer whose loss can be Liger's, as that of TRL 0.28; it trains without, since the package needs a GPU."""

    def train(self, *args: Any, **kwargs: Any) -> Any:
        self.args.use_liger_kernel = False
        return super().train(*args, **kwargs)

    def compute_liger_loss(self, unwrapped_model: Any, inputs: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_overrides_that_pass_on_their_arguments_are_attached(
    tmp_path: Path, received: Received, capfd: pytest.CaptureFixture[str], mode: str
) -> None:
    trainer = received.train(tiny.grpo(tmp_path, kind=VariadicTrainer, sampler=tiny.noisy), mode=mode)
    assert "lacks" not in capfd.readouterr().err
    assert received.keys == [(step, 0, 0, 1) for step in range(4)]
    assert received.signals(0)["reward_mean"] == pytest.approx(trainer.state.log_history[0]["reward"])
    assert {report.mode for report in received.of(wire.Report)} == {mode}


def test_a_loss_that_computes_no_log_probs_is_named(
    tmp_path: Path, received: Received, capfd: pytest.CaptureFixture[str]
) -> None:
    trainer = tiny.grpo(tmp_path, kind=LigerTrainer)
    trainer.args.use_liger_kernel = True
    received.train(trainer, mode="enforce")
    said = capfd.readouterr().err
    assert "lacks log-probs in compute_liger_loss: trmon reports what it logs, without its sequences" in said
    assert "gives trmon no sequences: mode observe" in said
    assert received.scalars("reward").keys() == {1, 2, 3, 4}
    assert received.of(wire.Report) == []


def test_a_trainer_that_does_not_fit_gets_one_warning_and_reports_what_it_logs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    trainer = tiny.grpo(tmp_path, kind=OtherParametersTrainer)
    for _ in range(2):
        attach(trainer, project="math", run="tiny", url="http://127.0.0.1:9")
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("trmon:")]
    assert len(said) == 1
    assert "OtherParametersTrainer" in said[0]
    assert "_compute_loss(model, inputs)" in said[0]
    assert "_calculate_rewards(inputs, prompts, completions, completion_ids_list)" in said[0]
    assert {"train", "log", "evaluate", "_save_checkpoint"} <= vars(trainer).keys()
    assert "_compute_loss" not in vars(trainer)


def test_a_failure_while_reporting_is_counted_and_training_goes_on(
    tmp_path: Path, received: Received, capfd: pytest.CaptureFixture[str]
) -> None:
    alone = tiny.grpo(tmp_path, sampler=tiny.noisy)
    alone.train()
    trainer = received.train(tiny.grpo(tmp_path, kind=LengtheningTrainer, sampler=tiny.noisy))
    assert tiny.are_equal(tiny.parameters_of(trainer), tiny.parameters_of(alone))
    assert received.of(wire.Report) == []
    assert received.of(wire.Finish)[0].losses.dropped == {"internal": 4}
    assert capfd.readouterr().err.count("a call failed and was not reported: ValueError") == 1


def test_a_wrong_name_is_an_error_before_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="project"):
        attach(tiny.grpo(tmp_path), project="not a name", run="tiny")


def online_dpo(folder: Path) -> Any:
    """Return an OnlineDPOTrainer of 4 steps."""
    from trl.experimental.online_dpo import OnlineDPOConfig, OnlineDPOTrainer

    given = {name: value for name, value in tiny.arguments(folder).items() if name != "num_generations"}
    given["max_new_tokens"] = given.pop("max_completion_length")
    policy = tiny.model(folder)
    return OnlineDPOTrainer(
        model=policy,
        ref_model=tiny.model(folder),
        reward_funcs=tiny.word_sum,
        args=OnlineDPOConfig(**given),
        train_dataset=tiny.prompts(),
        processing_class=tiny.tokenizer(),
    )


def ppo(folder: Path) -> Any:
    """Return a PPOTrainer of 4 steps."""
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    unknown = ("num_generations", "max_completion_length", "max_steps")
    given = {name: value for name, value in tiny.arguments(folder).items() if name not in unknown}
    sizes = {"response_length": tiny.LENGTH, "total_episodes": 4 * tiny.BATCH, "num_mini_batches": 1}
    words = tiny.tokenizer()
    policy = tiny.model(folder)
    rows = [{"input_ids": words(text["prompt"])["input_ids"]} for text in tiny.prompts()]
    torch.manual_seed(0)
    reward, value = (Qwen2ForSequenceClassification(policy.config) for _ in range(2))
    for critic in (reward, value):
        critic.score = torch.nn.Linear(policy.config.hidden_size, 1, bias=False)
    return PPOTrainer(
        args=PPOConfig(**given, **sizes, num_sample_generations=0),
        processing_class=words,
        model=policy,
        ref_model=tiny.model(folder),
        reward_model=reward,
        value_model=value,
        train_dataset=tiny.Dataset.from_list(rows),
        eval_dataset=tiny.Dataset.from_list(rows),
    )


class OwnLossTrainer(tiny.SamplingTrainer):
    """A trainer that scores the completions of its loss itself."""

    def _compute_loss(self, model: Any, inputs: Any) -> Any:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        logps = model(input_ids=ids).logits.log_softmax(-1)[:, :-1].gather(-1, ids[:, 1:, None]).squeeze(-1)
        return -(logps[:, -inputs["completion_ids"].shape[1] :].mean(1) * inputs["advantages"]).mean()


def own_loss(folder: Path) -> Any:
    """Return a GRPOTrainer of 4 steps whose loss calls no method of TRL."""
    return tiny.grpo(folder, kind=OwnLossTrainer)


@pytest.mark.parametrize(
    ("make", "reason", "rewards"),
    [
        pytest.param(
            ppo,
            "PPOTrainer of TRL",
            "objective/scores",
            marks=pytest.mark.skipif(not find_spec("trl.experimental.ppo"), reason="this TRL has no PPOTrainer"),
        ),
        (online_dpo, "OnlineDPOTrainer of TRL", "objective/scores"),
        (own_loss, "the loss of OwnLossTrainer", "reward"),
    ],
    ids=["PPO", "online DPO", "a loss of its own"],
)
def test_a_trainer_without_known_sequences_reports_what_it_logs(
    tmp_path: Path, received: Received, capfd: pytest.CaptureFixture[str], make: Any, reason: str, rewards: str
) -> None:
    trainer = received.train(make(tmp_path))
    said = [line for line in capfd.readouterr().err.splitlines() if "what it logs, without its sequences" in line]
    assert len(said) == 1
    assert reason in said[0]
    logged = {entry["step"]: entry[rewards] for entry in trainer.state.log_history if rewards in entry}
    assert len(logged) == 4
    assert received.scalars(rewards) == pytest.approx(logged)
    assert received.of(wire.Report) == []
    (finish,) = received.of(wire.Finish)
    assert finish.outcome == "finished"
