"""SkyRL 0.3.0: its loss, and its trainer on the driver with stub workers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch, pad_training_input_batch
from skyrl.backends.skyrl_train.utils.ppo_utils import ppo_policy_loss
from skyrl.train.config.config import SkyRLTrainConfig
from skyrl.train.trainer import RayPPOTrainer
from skyrl.train.utils.callbacks import CallbackHandler, TrainingCallback, TrainingControl

from tests.client.integrations.rollouts import (
    GROUPS,
    LENGTH,
    Rollouts,
    assert_bit_identical,
    assert_reported,
    numbers,
    reported,
)
from tests.client.server import Peer
from trmon_client.core import wire
from trmon_client.core.signals import batch_signals
from trmon_client.integrations.skyrl import SkyRLCallback, attach_skyrl

N_PROMPT_TOKENS = 2
EVENTS = {name for name in vars(TrainingCallback) if name.startswith("on_")}


def trainer_of(rollouts: Rollouts) -> RayPPOTrainer:
    """Return a trainer at its third step, whose workers score the rollouts and the row of padding."""
    trainer = object.__new__(RayPPOTrainer)
    trainer.cfg = SkyRLTrainConfig()
    trainer.cfg.trainer.project_name, trainer.cfg.trainer.run_name = "math of SkyRL", "tiny"
    trainer.cfg.trainer.algorithm.advantage_estimator = "grpo"
    trainer.cfg.trainer.algorithm.grpo_norm_by_std = False
    trainer.cfg.trainer.critic.model.path = None
    trainer.global_step, trainer.all_metrics = 3, {}
    trainer._callback_handler, trainer._training_control = CallbackHandler(None), TrainingControl()
    trainer._current_epoch, trainer.train_dataloader, trainer.total_training_steps = 0, None, 10
    trainer.ref_model, trainer.dispatch = None, SimpleNamespace(empty_cache=lambda *_model: None)
    trainer._execute_forward_pass = lambda *_args, **_kwargs: torch.cat([rollouts.old, rollouts.old[:1]])
    return trainer


def batch_of(rollouts: Rollouts) -> TrainingInputBatch:
    """Return the rollouts as the trainer has them before the forward pass, padded by SkyRL to five rows."""
    n_rows = len(GROUPS)
    rewards = torch.zeros(rollouts.mask.shape)
    rewards[torch.arange(n_rows), rollouts.mask.sum(1) - 1] = rollouts.rewards
    batch = TrainingInputBatch(
        {
            "sequences": torch.ones((n_rows, N_PROMPT_TOKENS + LENGTH), dtype=torch.long),
            "attention_mask": torch.ones((n_rows, N_PROMPT_TOKENS + LENGTH), dtype=torch.long),
            "response_mask": rollouts.mask.clone(),
            "loss_mask": rollouts.mask.clone(),
            "rewards": rewards,
            "rollout_logprobs": rollouts.mu.clone(),
        }
    )
    batch.metadata = {
        "uids": [f"prompt{group}" for group in GROUPS],
        "response_length": LENGTH,
        "avg_response_length": 2.5,
    }
    return pad_training_input_batch(batch, 1)


def prepared(trainer: RayPPOTrainer, rollouts: Rollouts) -> dict[str, Any]:
    """Do what `train` does between generation and training; return the tensors that it trains on."""
    data = trainer.compute_advantages_and_returns(trainer.fwd_logprobs_values_reward(batch_of(rollouts)))
    return {name: tensor for name, tensor in data.items() if isinstance(tensor, torch.Tensor)}


def loss_of(trainer: RayPPOTrainer, data: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, dict[str, float]]:
    """Return SkyRL's loss with its token-level correction, the gradient and what it logs."""
    config = trainer.cfg.trainer.algorithm
    config.off_policy_correction.tis_ratio_type = "token"
    config.off_policy_correction.token_tis_ratio_clip_high = 2.0
    pi = data["action_log_probs"].clone().requires_grad_()
    loss, metrics = ppo_policy_loss(
        pi, data["action_log_probs"], data["advantages"], config, data["loss_mask"], data["rollout_logprobs"]
    )
    loss.backward()
    assert pi.grad is not None
    return loss.detach(), pi.grad, metrics


def test_the_loss_is_bit_identical_and_the_signals_are_what_skyrl_logs(server: Peer) -> None:
    rollouts = Rollouts.generate()
    plain, attached = trainer_of(rollouts), trainer_of(rollouts)
    attach_skyrl(attached)
    before, after = prepared(plain, rollouts), prepared(attached, rollouts)
    assert before.keys() == after.keys()
    assert_bit_identical([*before.values()], [*after.values()])
    assert_bit_identical([*loss_of(plain, before)[:2]], [*loss_of(attached, after)[:2]])
    (report,), columns = reported(server)
    assert (report.step, report.update, report.chunks) == (3, None, 1)
    assert_reported(columns, rollouts, has=("rewards", "group_ids"))
    logged = attached.all_metrics["policy/rollout_train_logprobs_abs_diff_max"]
    assert batch_signals.compute(columns)["mismatch_abs_log_ratio_max"] == pytest.approx(logged, rel=1e-5)


def test_skyrls_own_events_reach_the_run(server: Peer) -> None:
    trainer = trainer_of(Rollouts.generate())
    attach_skyrl(trainer)
    for event in sorted(EVENTS, key="on_train_end".__eq__):
        trainer._fire(event, logs={"policy/loss": 0.25})
    assert numbers(server) == [(3, {"policy/loss": 0.25})]
    (start,) = server.of(wire.Start)
    assert start.config["framework"] == "skyrl 0.3.0"
    assert start.config["trainer"]["algorithm"]["advantage_estimator"] == "grpo"


def test_the_callback_has_each_of_skyrls_events() -> None:
    assert {*dir(SkyRLCallback)} >= EVENTS
