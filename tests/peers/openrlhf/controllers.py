"""A controller of OpenRLHF whose groups of Ray actors are stubs; trainer, experience maker and batches are its own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import ray
import torch
from openrlhf.trainer.ppo_trainer import BasePPOTrainer
from openrlhf.trainer.ppo_utils.experience import Experience
from openrlhf.trainer.ppo_utils.experience_maker import RemoteExperienceMaker

from tests.client.integrations.rollouts import LENGTH, LENGTHS, SCORES, TRUNCATED, Rollouts

STATUS = {"policy_loss": 0.25, "actor_lr": 1e-6}


def arguments() -> Any:
    """Return the arguments of a GRPO run (`group_norm`) in micro-batches of two, as `hierarchize` nests them."""
    advantage = SimpleNamespace(estimator="group_norm", gamma=1.0, no_std_norm=False)
    return SimpleNamespace(
        train=SimpleNamespace(dynamic_batch_enable=False, colocate_all=False, colocate_actor_ref=False),
        rollout=SimpleNamespace(n_samples_per_prompt=2, micro_batch_size=2, batch_size=2),
        ds=SimpleNamespace(ring_attn_size=1, tensor_parallel_size=1, enable_sleep=False),
        algo=SimpleNamespace(advantage=advantage, kl=SimpleNamespace(use_loss=False, estimator="k1")),
        reward=SimpleNamespace(
            clip_range=None, overlong_buffer_len=None, overlong_penalty_factor=1.0, stop_properly_penalty_coef=None
        ),
        critic=SimpleNamespace(freezing_steps=-1),
        logger=SimpleNamespace(
            wandb=SimpleNamespace(key="secret-key", project="math", run_name="tiny"), logging_steps=1
        ),
        ckpt=SimpleNamespace(save_steps=float("inf")),
    )


class ActorGroup:
    """What the controller asks of the actor's workers: old log-probs, in micro-batches, and an update."""

    def __init__(self, old: list[torch.Tensor]) -> None:
        self.old = old
        self.appended: list[Any] = []

    def async_run_method_batch(self, *, method_name: str, **given: Any) -> list[Any]:
        """Return references to results."""
        if method_name == "append":
            self.appended += given["experience"]
            return []
        return [ray.put([log_probs]) for log_probs in self.old]

    def async_run_method(self, *, method_name: str, **_given: Any) -> list[Any]:
        """Return references to the metrics of an update."""
        return [ray.put(dict(STATUS))]


def samples(rollouts: Rollouts) -> list[Experience]:
    """Return the rollouts as the samples generator does: one experience each, as long as its response."""
    rows = []
    for i, length in enumerate(LENGTHS):
        rows.append(
            Experience(
                sequences=torch.ones((1, LENGTH + 1), dtype=torch.long),
                attention_mask=torch.ones((1, LENGTH + 1), dtype=torch.long),
                action_mask=rollouts.mask[i : i + 1],
                rollout_log_probs=rollouts.mu[i : i + 1],
                prompts=["a prompt"],
                labels=[""],
                rewards=torch.tensor([SCORES[i]]),
                scores=torch.tensor([SCORES[i]]),
                response_length=torch.tensor([length]),
                truncated=torch.tensor([TRUNCATED[i]]),
                total_length=torch.tensor([float(LENGTH + 1)]),
                info={"reward": torch.tensor([SCORES[i]])},
            )
        )
    return rows


def controller(rollouts: Rollouts) -> BasePPOTrainer:
    """Return a controller whose actors score the rollouts."""
    args = arguments()
    strategy = SimpleNamespace(args=args)
    group = ActorGroup([*rollouts.old.split(2)])
    kl = SimpleNamespace(value=0.0, update=lambda _current, _n_steps: None)
    trainer = object.__new__(type("Controller", (BasePPOTrainer,), {}))
    trainer.strategy, trainer.args, trainer.kl_ctl = strategy, args, kl
    trainer.actor_model_group, trainer.critic_model_group, trainer.vllm_engines = group, None, None
    trainer.wandb_logger = trainer.tensorboard_logger = None
    trainer.tokenizer = SimpleNamespace(pad_token_id=0, decode=lambda *_args, **_kwargs: "text")
    trainer.experience_maker = RemoteExperienceMaker(group, None, None, None, kl, strategy, trainer.tokenizer)
    return trainer


def train_one_step(global_step: int) -> tuple[bool, int]:
    """Train one step and log it; return whether the trainer was hooked, and the next step."""
    trainer = controller(Rollouts.generate())
    status, step = trainer.train_step(samples(Rollouts.generate()), global_step)
    trainer.save_logs_and_checkpoints(step, status)
    return hasattr(BasePPOTrainer.train_step, "hooked_method"), step
