"""Enforced decisions in TRL's loss: what is rejected gives no gradient, and the normaliser counts it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.peers.trl import tiny
from tests.peers.trl.conftest import Received
from trmon_client.core import wire

ONE_STEP = {"max_steps": 1, "optim": "sgd", "learning_rate": 1.0, "max_grad_norm": 0.0, "lr_scheduler_type": "constant"}
FAR = 3.0
CALM = {"name": "geo_mask", "criteria": [{"statistic": "geo_ratio", "lower": 0.9, "upper": 1.1}]}
HAS_ENTROPY_BONUS = pytest.mark.skipif(
    not hasattr(tiny.GRPOConfig, "entropy_coef"), reason="this TRL has no entropy bonus"
)
NOTHING = {"name": "nothing", "criteria": [{"statistic": "geo_ratio", "lower": 2.0, "upper": 3.0}]}


def far_if_even(logprobs: torch.Tensor) -> torch.Tensor:
    """Return log-probs of which those of completions of even length are far from the model's."""
    return logprobs - (0.0 if len(logprobs) % 2 else FAR)


class ZeroedTrainer(tiny.SamplingTrainer):
    """A trainer that by itself learns nothing from completions of even length."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        rollouts = super()._generate_and_score_completions(inputs)
        rollouts["advantages"] = rollouts["advantages"] * (rollouts["completion_mask"].sum(1) % 2)
        return rollouts


class WeightedTrainer(tiny.SamplingTrainer):
    """A trainer that by itself gives every token half its weight."""

    def _generate_and_score_completions(self, inputs: Any) -> Any:
        rollouts = super()._generate_and_score_completions(inputs)
        rollouts["advantages"] = rollouts["advantages"] / 2
        return rollouts


def change_of(trainer: Any, received: Received | None = None, policy: Any = None) -> torch.Tensor:
    """Train, alone or enforcing a policy, and return by how much the parameters changed."""
    before = torch.cat([parameter.flatten() for parameter in tiny.parameters_of(trainer)])
    if received is None:
        trainer.train()
    else:
        received.train(trainer, mode="enforce", policy=policy)
    after = torch.cat([parameter.flatten() for parameter in tiny.parameters_of(trainer)])
    assert after.isfinite().all()
    return after - before


@pytest.mark.parametrize("given", [{}, {"corrects": True}, {"num_iterations": 2, "max_steps": 2}], ids=str)
def test_rejected_completions_do_not_train_and_the_normaliser_counts_them(
    tmp_path: Path, received: Received, given: dict[str, Any]
) -> None:
    arguments = {**ONE_STEP, "seed": 3, **given}
    expected = change_of(tiny.grpo(tmp_path, kind=ZeroedTrainer, sampler=far_if_even, **arguments))
    found = change_of(tiny.grpo(tmp_path, sampler=far_if_even, **arguments), received, CALM)
    assert found.abs().max() > 1e-3
    assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)
    accepted = [wire.unpack_bits(report.accepted, tiny.BATCH) for report in received.of(wire.Report)]
    assert {bool(bit) for bits in accepted for bit in bits} == {True, False}


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"beta": 0.5, "num_iterations": 2, "max_steps": 3},
        {"corrects": True, "beta": 0.5},
        {"loss_type": "dapo"},
        pytest.param({"entropy_coef": 0.5}, marks=HAS_ENTROPY_BONUS),
    ],
    ids=str,
)
def test_where_every_completion_is_rejected_nothing_changes(
    tmp_path: Path, received: Received, given: dict[str, Any]
) -> None:
    trainer = tiny.grpo(tmp_path, sampler=tiny.noisy, **{**ONE_STEP, **given})
    if trainer.ref_model is not None:
        # At the reference, the KL to it has no gradient.
        trainer.ref_model.lm_head.weight.data *= 1.5
    found = change_of(trainer, received, NOTHING)
    assert found.abs().max() == 0
    assert {report.mode for report in received.of(wire.Report)} == {"enforce"}


def test_token_rules_weigh_the_loss_of_each_token(tmp_path: Path, received: Received) -> None:
    def doubled(logprobs: torch.Tensor) -> torch.Tensor:
        return logprobs + 0.6931472  # the model's probability is half the sampler's: rho = 1/2, so TIS weighs by 1/2

    expected = change_of(tiny.grpo(tmp_path, kind=WeightedTrainer, sampler=doubled, **ONE_STEP))
    found = change_of(tiny.grpo(tmp_path, sampler=doubled, **ONE_STEP), received, "tis")
    assert found.abs().max() > 1e-3
    assert torch.allclose(found, expected, rtol=1e-3, atol=1e-6)


def test_evaluations_are_not_enforced(tmp_path: Path, received: Received) -> None:
    given = {**ONE_STEP, "learning_rate": 0.0, "sampler": tiny.noisy}
    given |= {"eval_strategy": "steps", "eval_steps": 1, "eval_dataset": tiny.prompts(4)}
    alone = tiny.grpo(tmp_path, **given)
    alone.train()
    trainer = tiny.grpo(tmp_path, **given)
    received.train(trainer, mode="enforce", policy=NOTHING)
    losses = [
        [entry["eval_loss"] for entry in one.state.log_history if "eval_loss" in entry] for one in (alone, trainer)
    ]
    assert losses[0] == losses[1] != []
