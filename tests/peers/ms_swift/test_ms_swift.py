"""ms-swift 4.6.0: its GRPOTrainer writes the advantages into its GRPOBatch, and its callbacks attach trmon."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from swift.callbacks import callbacks_map
from swift.rl_core.data import GRPOBatch, GRPOSample
from swift.rlhf_trainers.grpo_trainer import GRPOTrainer
from transformers import TrainerCallback

from tests.client.integrations.rollouts import (
    GROUPS,
    Rollouts,
    assert_bit_identical,
    assert_reported,
    reported,
    swift_batches,
    tensors_of,
)
from tests.client.server import Peer
from trmon_client.core import wire
from trmon_client.integrations.ms_swift import swift_callback


class Trainer(GRPOTrainer):
    """ms-swift's trainer at step 4, without its model, data and rollout engine; training is one generation."""

    def __init__(self, rollouts: Rollouts) -> None:
        self.rollouts = rollouts
        self.accelerator = SimpleNamespace(
            process_index=0, num_processes=1, is_main_process=True, device=torch.device("cpu")
        )
        self.template = SimpleNamespace(sequence_parallel_size=1)
        self.model = SimpleNamespace(training=True)
        self.state = SimpleNamespace(global_step=4)
        self.reward_weights = torch.tensor([1.0, 2.0])
        self._rewards_per_func = torch.stack([rollouts.rewards, torch.full((4,), torch.nan)], dim=1)
        self._has_teacher, self.use_teacher_api = False, False
        self.advantage_reweight, self.sdar_loss_coef = None, 0.0
        self._logs: Any = defaultdict(list)
        self.batches = swift_batches(rollouts, GRPOBatch)

    def train(self, *_args: Any, **_kwargs: Any) -> str:
        samples = [GRPOSample(messages=[], prompt_id=f"prompt{group}") for group in GROUPS]
        self._postprocess_batch(samples, self.batches)
        return "trained"

    def _compute_advantages(self, *_args: Any) -> torch.Tensor:
        return self.rollouts.advantages[:, 0]

    def split_by_mini_batches(self, inputs: list[GRPOSample]) -> list[list[GRPOSample]]:
        return [inputs[:2], inputs[2:]]


def test_the_batches_of_the_trainer_are_reported_and_stay_as_they_are(server: Peer) -> None:
    rollouts = Rollouts.generate()
    plain, trainer = Trainer(rollouts), Trainer(rollouts)
    assert isinstance(swift_callback({"learning_rate": 1e-6}, trainer), TrainerCallback)
    assert (plain.train(), trainer.train()) == ("trained", "trained")
    assert_bit_identical(tensors_of(plain.batches), tensors_of(trainer.batches))
    reports, columns = reported(server, n=2)
    assert [(report.step, report.chunks) for report in reports] == [(4, 2)] * 2
    assert_reported(columns, rollouts, has=("rewards", "group_ids", "truncated"))
    server.wait_for(wire.Finish)


def test_the_callback_is_made_as_ms_swift_makes_its_own(monkeypatch: pytest.MonkeyPatch, server: Peer) -> None:
    monkeypatch.setitem(callbacks_map, "trmon", swift_callback)
    trainer = Trainer(Rollouts.generate())
    assert isinstance(callbacks_map["trmon"]({}, trainer), TrainerCallback)
    trainer.train()
    reported(server, n=2)
