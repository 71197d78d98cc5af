"""The controller, shaped as in OpenRLHF 0.11.2: trainer/ppo_trainer.py, ppo_utils/{experience,experience_maker}.py."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.client.integrations.rollouts import (
    GROUPS,
    TRUNCATED,
    Rollouts,
    assert_bit_identical,
    assert_reported,
    checkpoints,
    reported,
    tensors_of,
)
from tests.client.server import Peer
from trmon_client.core import wire
from trmon_client.integrations.openrlhf import MAKER, OpenRLHFHooks

N_PER_PROMPT = 2
STATUS = {"policy_loss": 0.25, "rollout/reward_mean": 0.4375, "generated_samples": ["a text", 1.0]}


def experiences(rollouts: Rollouts) -> list[SimpleNamespace]:
    """Return the rollouts in two micro-batches, with the fields of `Experience` that the maker fills."""
    return [
        SimpleNamespace(
            action_mask=rollouts.mask[rows],
            action_log_probs=rollouts.old[rows],
            rollout_log_probs=rollouts.mu[rows],
            advantages=rollouts.advantages[rows],
            truncated=torch.tensor(TRUNCATED[rows]),
            index=[*range(len(GROUPS))][rows],
            info={"reward": rollouts.rewards[rows]},
        )
        for rows in (slice(0, 2), slice(2, 4))
    ]


def openrlhf(made: list[SimpleNamespace], *, hooks: OpenRLHFHooks | None = None) -> ModuleType:
    """Return a hooked module with the trainer's and the maker's class, whose maker makes these experiences."""

    class RemoteExperienceMaker:
        def __init__(self, args: Any) -> None:
            self.args = args

        def make_experience_batch(self, rollout_samples: Any) -> list[SimpleNamespace]:
            return made

    class BasePPOTrainer:
        def __init__(self) -> None:
            wandb = SimpleNamespace(project="math of OpenRLHF", run_name="ppo_1123T18:00", key="secret-key")
            rollout = SimpleNamespace(n_samples_per_prompt=N_PER_PROMPT)
            ckpt = SimpleNamespace(save_steps=2, path="/ckpt", disable_ds=False, save_hf=True)
            self.args = SimpleNamespace(logger=SimpleNamespace(wandb=wandb), rollout=rollout, ckpt=ckpt)
            self.experience_maker = RemoteExperienceMaker(self.args)
            self.saved: list[tuple[int, Any, Any]] = []

        def train_step(self, rollout_samples: Any, global_step: int) -> tuple[dict[str, Any], int]:
            self.trained_on = self.experience_maker.make_experience_batch(rollout_samples)
            return STATUS, global_step + 1

        def save_logs_and_checkpoints(self, global_step: int, logs_dict: Any = None, client_states: Any = None) -> None:
            self.saved.append((global_step, logs_dict, client_states))
            self.has_saved = global_step % self.args.ckpt.save_steps == 0

    module = ModuleType("openrlhf.trainer.ppo_trainer")
    module.BasePPOTrainer, module.RemoteExperienceMaker = BasePPOTrainer, RemoteExperienceMaker  # type: ignore[attr-defined]
    (hooks or OpenRLHFHooks()).hook(module)
    return module


@pytest.fixture(autouse=True)
def no_other_maker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where OpenRLHF is installed, another test may have imported it."""
    monkeypatch.delitem(sys.modules, MAKER, raising=False)


def test_a_step_is_reported_in_the_chunks_that_the_maker_makes(server: Peer) -> None:
    rollouts = Rollouts.generate()
    made = experiences(rollouts)
    before = tensors_of(made)
    module = openrlhf(made)
    trainer = module.BasePPOTrainer()
    assert trainer.train_step(["sample"], 6) == (STATUS, 7)
    assert trainer.trained_on is made
    assert_bit_identical(before, tensors_of(made))
    reports, columns = reported(server, n=2)
    assert [(report.step, report.update, report.chunks) for report in reports] == [(7, None, 2)] * 2
    assert_reported(columns, rollouts, has=("rewards", "group_ids", "truncated"))


def test_scalars_and_checkpoints_are_reported_under_openrlhfs_step(server: Peer) -> None:
    module = openrlhf(experiences(Rollouts.generate()))
    trainer = module.BasePPOTrainer()
    status, step = trainer.train_step(["sample"], 7)
    trainer.save_logs_and_checkpoints(step, status, {"episode": 0})
    assert trainer.saved == [(8, STATUS, {"episode": 0})]
    (scalars,) = server.wait_for(wire.Scalars)
    assert (scalars.step, scalars.values) == (8, {"policy_loss": 0.25, "rollout/reward_mean": 0.4375})
    assert checkpoints(server, n_pauses=2) == [(8, "/ckpt/_actor/global_step8")]


def test_a_warning_saves_a_checkpoint_and_the_interval_stays(server: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRMON_CHECKPOINT_ON_WARNING", "1")
    hooks = OpenRLHFHooks()
    module = openrlhf(experiences(Rollouts.generate()), hooks=hooks)
    trainer, saves = module.BasePPOTrainer(), []
    trainer.args.ckpt.save_steps = float("inf")
    for step in range(6, 9):
        trainer.train_step(["sample"], step)
        if step == 7:
            hooks._monitor.advice_cache.update({"step": 6, "save_checkpoint": True})
        trainer.save_logs_and_checkpoints(step + 1, STATUS)
        saves.append(trainer.has_saved)
    assert saves == [False, True, False]
    assert trainer.args.ckpt.save_steps == float("inf")


def test_the_run_has_its_names_and_configuration_without_secrets(server: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRMON_PROJECT")
    monkeypatch.delenv("TRMON_RUN")
    module = openrlhf(experiences(Rollouts.generate()))
    module.BasePPOTrainer().train_step(["sample"], 0)
    (start,) = server.wait_for(wire.Start)
    assert (start.project, start.run) == ("math-of-OpenRLHF", "ppo_1123T18-00")
    assert start.config["rollout"]["n_samples_per_prompt"] == N_PER_PROMPT
    assert "secret-key" not in str(start.config)
