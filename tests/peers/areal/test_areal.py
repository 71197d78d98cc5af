"""AReaL 1.0.4: its PPOActor computes the advantages, its RTensor fetches what its workers hold."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from areal.api.cli_args import PPOActorConfig, SaverConfig
from areal.infra.rpc import rtensor
from areal.trainer.ppo.actor import PPOActor
from areal.utils.saver import Saver

from tests.client.integrations.rollouts import (
    Rollouts,
    assert_bit_identical,
    assert_reported,
    numbers,
    reported,
    tensors_of,
)
from tests.client.server import Peer
from trmon_client.core import wire
from trmon_client.integrations.areal import attach_areal

N_PROMPT_TOKENS = 2
VERSION = 5


class Actor:
    """AReaL's actor on one device, without its engine, as `FSDPPPOActor` is made: a PPOActor and a version."""

    def __init__(self, **config: Any) -> None:
        # Without a penalty for KL, all tokens of a sample have one advantage.
        self.actor = PPOActor(PPOActorConfig(experiment_name="math", trial_name="tiny", kl_ctl=0.0, **config), self)

    def get_version(self) -> int:
        return VERSION

    def compute_advantages(self, *args: Any, **kwargs: Any) -> list[dict[str, Any]]:
        return self.actor.compute_advantages(*args, **kwargs)


def trainer_of(actor: Any, folder: Path = Path("/nowhere")) -> SimpleNamespace:
    """Return what `attach_areal` uses of a PPOTrainer."""
    logger = SimpleNamespace(commit=lambda epoch, step, global_step, data: None)  # noqa: ARG005
    saves = SaverConfig(experiment_name="math", trial_name="tiny", fileroot=str(folder), freq_steps=2)
    config = SimpleNamespace(experiment_name="math", trial_name="tiny", saver=saves)
    saver = Saver(saves, SimpleNamespace(steps_per_epoch=10))
    return SimpleNamespace(actor=actor, config=config, stats_logger=logger, saver=saver, close=lambda: None)


def of_tokens(values: torch.Tensor, *, prompt: float = 0) -> torch.Tensor:
    """Return [B, prompt + T], at the positions of the tokens."""
    return torch.cat([values.new_full((len(values), N_PROMPT_TOKENS), prompt), values], dim=1)


def trajectories(rollouts: Rollouts) -> list[dict[str, Any]]:
    """Return the samples of two prompts, as `workflow/rlvr.py` and `compute_logp` leave them."""
    attention = of_tokens(rollouts.mask, prompt=1).bool()
    whole = {
        "input_ids": torch.zeros(attention.shape, dtype=torch.long),
        "attention_mask": attention,
        "loss_mask": of_tokens(rollouts.mask).int(),
        "logprobs": of_tokens(rollouts.mu),
        "versions": of_tokens(torch.full_like(rollouts.mask, 4), prompt=-1).int(),
        "prox_logp": of_tokens(rollouts.old).roll(-1, -1),
        "rewards": rollouts.rewards,
    }
    return [{name: values.split(2)[i].clone() for name, values in whole.items()} for i in range(2)]


def check(server: Peer, rollouts: Rollouts, computed: list[dict[str, Any]]) -> None:
    """Check the report of a step against the rollouts and the advantages that AReaL computed."""
    (report,), columns = reported(server)
    assert (report.step, report.chunks, report.trainer_version) == (VERSION, 1, VERSION)
    advantages = torch.cat([one["advantages"] for one in computed])[:, N_PROMPT_TOKENS - 1 :]
    made = Rollouts(rollouts.mu, rollouts.old, rollouts.mask, advantages, rollouts.rewards)
    assert_reported(columns, made, has=("rewards", "group_ids"))


def test_what_the_actor_computes_is_reported_and_stays_as_it_is(server: Peer) -> None:
    rollouts = Rollouts.generate()
    expected = Actor().compute_advantages(trajectories(rollouts))
    trainer = trainer_of(Actor())
    attach_areal(trainer)
    computed = trainer.actor.compute_advantages(trajectories(rollouts))
    assert_bit_identical(tensors_of(expected), tensors_of(computed))
    check(server, rollouts, computed)


def test_log_probs_that_the_actor_overwrites_are_reported_as_the_sampler_gave_them(server: Peer) -> None:
    rollouts = Rollouts.generate()
    trainer = trainer_of(Actor(use_decoupled_loss=False, recompute_logprob=True))
    attach_areal(trainer)
    computed = trainer.actor.compute_advantages(trajectories(rollouts))
    check(server, rollouts, computed)


def test_the_controller_fetches_copies_of_what_the_workers_hold(server: Peer) -> None:
    rollouts, references = Rollouts.generate(), []

    def remote(tensor: torch.Tensor) -> rtensor.RTensor:
        """Return a reference, whose tensor is in the buffer of what was fetched."""
        shard = rtensor.TensorShardInfo(shard_id=f"shard-{len(references)}", node_addr="")
        rtensor._fetch_buffer[shard.shard_id] = tensor
        references.append(rtensor.RTensor(shard=shard, data=tensor.to("meta")))
        return references[-1]

    actor = Actor()
    computed = actor.compute_advantages(trajectories(rollouts))
    given = [{name: remote(tensor) for name, tensor in one.items()} for one in trajectories(rollouts)]
    answer = [{"advantages": remote(one["advantages"])} for one in computed]
    actor.compute_advantages = lambda *_args: answer  # type: ignore[method-assign]
    trainer = trainer_of(actor)
    attach_areal(trainer)
    assert trainer.actor.compute_advantages(given) is answer
    check(server, rollouts, computed)
    assert all(reference.data.is_meta for reference in references)


def test_the_weights_that_its_saver_saves_are_reported(
    server: Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The saver asks whether an engine is of this kind, which needs Triton.
    archon = ModuleType("areal.experimental.engine.archon_engine")
    archon.ArchonEngine = type("ArchonEngine", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, archon.__name__, archon)
    actor = Actor()
    actor.save = lambda meta: Path(meta.path, "weights").touch()  # type: ignore[attr-defined]
    trainer = trainer_of(actor, tmp_path)
    attach_areal(trainer)
    for step in range(4):
        trainer.saver.save(actor, 0, step, step, tokenizer=None, processor=None)
    trainer.close()
    server.wait_for(wire.Finish)
    saved = [pause.checkpoint for pause in server.of(wire.Pause)]
    assert [one.step for one in saved] == [1, 3]
    assert all(Path(one.path, "weights").is_file() for one in saved)


def test_the_end_is_reported(server: Peer) -> None:
    trainer = trainer_of(Actor())
    attach_areal(trainer)
    trainer.stats_logger.commit(0, 5, 5, {"ppo_actor/update/grad_norm": 1.5})
    trainer.close()
    assert numbers(server) == [(5, {"ppo_actor/update/grad_norm": 1.5})]
