"""Trainers of TRL whose batches trmon does not see, in real training on the CPU: they report what they log."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2ForSequenceClassification

from tests.peers.trl import tiny
from tests.peers.trl.conftest import Received
from trmon_client.core import wire


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
