"""The trainer and its trajectories, shaped as in AReaL 1.0.4: trainer/{rl_trainer,ppo/actor}.py, workflow/rlvr.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tests.client.integrations.rollouts import (
    LENGTHS,
    Rollouts,
    assert_bit_identical,
    assert_reported,
    checkpoints,
    numbers,
    reported,
    tensors_of,
)
from tests.client.server import Peer
from trmon_client.core import wire
from trmon_client.integrations.areal import attach_areal

N_PROMPT_TOKENS = 2
VERSIONS = (4, 4, 3, 4)


class PPOActor:
    """What is used of an actor: its version, and advantages of trajectories."""

    def __init__(self, rollouts: Rollouts) -> None:
        self.rollouts = rollouts

    def get_version(self) -> int:
        return 5

    def compute_advantages(self, *args: Any, **_kwargs: Any) -> list[dict[str, Any]]:
        (trajectories,) = args
        advantages = shifted(self.rollouts.advantages).split(2)
        return [
            # AReaL overwrites the log-probs of the sampler in what it returns.
            {**trajectory, "logprobs": trajectory["prox_logp"], "advantages": rows}
            for trajectory, rows in zip(trajectories, advantages, strict=True)
        ]


class Saver:
    """Saves at the second step of three, in a folder for each engine."""

    @staticmethod
    def get_save_root(experiment_name: str, trial_name: str, fileroot: str) -> str:
        return f"{fileroot}/{experiment_name}/{trial_name}"

    def save(self, engine: Any, epoch: int, step: int, global_step: int, *, fileroot: str, name: str) -> None:
        if step == 1:
            root = Path(self.get_save_root("math", "tiny", fileroot), name)
            (root / f"epoch{epoch}epochstep{step}globalstep{global_step}").mkdir(parents=True)


class PPOTrainer:
    """What `attach_areal` uses of a trainer."""

    def __init__(self, rollouts: Rollouts, fileroot: Path = Path("/nowhere")) -> None:
        self.actor = PPOActor(rollouts)
        names = {"experiment_name": "math", "trial_name": "tiny"}
        self.config = SimpleNamespace(**names, saver=SimpleNamespace(**names, fileroot=str(fileroot)))
        self.committed: list[Any] = []
        self.stats_logger = SimpleNamespace(commit=self._commit)
        self.saver = Saver()
        self.is_closed = False

    def _commit(self, epoch: int, step: int, global_step: int, data: Any) -> None:
        self.committed.append((epoch, step, global_step, data))

    def close(self) -> None:
        self.is_closed = True


def of_tokens(values: torch.Tensor, *, prompt: float = 0) -> torch.Tensor:
    """Return [B, prompt + T], at the positions of the tokens."""
    return torch.cat([values.new_full((len(values), N_PROMPT_TOKENS), prompt), values], dim=1)


def shifted(values: torch.Tensor) -> torch.Tensor:
    """Return [B, prompt + T], at the positions that predict the tokens."""
    return of_tokens(values).roll(-1, -1)


def trajectories(rollouts: Rollouts) -> list[dict[str, Any]]:
    versions = torch.tensor(VERSIONS)[:, None].expand(rollouts.mask.shape)
    whole = {
        "attention_mask": of_tokens(rollouts.mask, prompt=1).bool(),
        "loss_mask": of_tokens(rollouts.mask).int(),
        "logprobs": of_tokens(rollouts.mu),
        "versions": of_tokens(versions, prompt=-1).int(),
        "prox_logp": shifted(rollouts.old),
        "rewards": rollouts.rewards,
    }
    return [{name: values.split(2)[i] for name, values in whole.items()} for i in range(2)]


def test_the_trajectories_of_a_step_are_reported_and_stay_as_they_are(server: Peer) -> None:
    rollouts = Rollouts.generate()
    trainer = PPOTrainer(rollouts)
    attach_areal(trainer)
    given = trajectories(rollouts)
    before, expected = tensors_of(given), tensors_of(PPOActor(rollouts).compute_advantages(trajectories(rollouts)))
    assert_bit_identical(expected, tensors_of(trainer.actor.compute_advantages(given)))
    assert_bit_identical(before, tensors_of(given))
    (report,), columns = reported(server)
    assert (report.step, report.update, report.chunks, report.trainer_version) == (5, None, 1, 5)
    assert_reported(columns, rollouts, has=("rewards", "group_ids"))
    assert columns["version_min"].tolist() == list(VERSIONS)


def test_numbers_and_the_end_are_reported(server: Peer) -> None:
    trainer = PPOTrainer(Rollouts.generate())
    attach_areal(trainer)
    stats = {"ppo_actor/update/grad_norm": np.float32(1.5), "timeperf/step": 2.0}
    trainer.stats_logger.commit(0, 5, 5, stats)
    trainer.close()
    assert (trainer.committed, trainer.is_closed) == ([(0, 5, 5, stats)], True)
    assert numbers(server) == [(5, {"ppo_actor/update/grad_norm": 1.5, "timeperf/step": 2.0})]
    assert [end.reason for end in server.of(wire.Finish)] == [wire.EndReason.CLOSED]


def test_without_recomputed_log_probs_rewards_are_reported(server: Peer) -> None:
    rollouts = Rollouts.generate()
    trainer = PPOTrainer(rollouts)
    trainer.actor.compute_advantages = lambda *_given: [  # type: ignore[method-assign]
        {"advantages": rows} for rows in shifted(rollouts.advantages).split(2)
    ]
    attach_areal(trainer)
    trainer.actor.compute_advantages([{**one, "prox_logp": None} for one in trajectories(rollouts)])
    _, columns = reported(server)
    assert not columns.pairs
    assert columns["n_tokens"].tolist() == list(LENGTHS)


def test_of_the_actor_the_weights_that_are_saved_are_reported(server: Peer, tmp_path: Path) -> None:
    trainer = PPOTrainer(Rollouts.generate(), tmp_path)
    attach_areal(trainer)
    for step in range(3):
        for name, engine in (("default", trainer.actor), ("critic", object())):
            trainer.saver.save(engine, 2, step, 6 + step, fileroot=str(tmp_path), name=name)
    trainer.close()
    server.wait_for(wire.Finish)
    assert checkpoints(server) == [(7, str(tmp_path / "math/tiny/default/epoch2epochstep1globalstep7"))]
