"""The trainer and its batches, shaped as in ms-swift 4.6.0: rlhf_trainers/grpo_trainer.py, rl_core/data.py."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tests.client.integrations.rollouts import (
    GROUPS,
    Rollouts,
    assert_bit_identical,
    assert_reported,
    numbers,
    reported,
    swift_batches,
    tensors_of,
)
from tests.client.server import Peer
from trmon_client.core import wire
from trmon_client.integrations.ms_swift import swift_callback

LOGS = {"loss": 0.25, "grad_norm": 1.5, "global_step/max_steps": "4/10"}


class GRPOTrainer:
    """What `swift_callback` uses of a trainer: the second of two ranks, at step 4."""

    def __init__(self, rollouts: Rollouts, *, sequence_parallel_size: int = 1) -> None:
        self.rollouts = rollouts
        self.accelerator = SimpleNamespace(process_index=1, num_processes=2, is_main_process=False)
        self.template = SimpleNamespace(sequence_parallel_size=sequence_parallel_size)
        self.model = SimpleNamespace(training=True)
        self.state = SimpleNamespace(global_step=4)
        self.reward_weights = torch.tensor([1.0, 2.0])
        by_function = torch.stack([self.rollouts.rewards, torch.full((4,), torch.nan)], dim=1)
        self._rewards_per_func = torch.cat([torch.full((4, 2), 9.0), by_function])
        self.batches = swift_batches(rollouts, SimpleNamespace)
        self.logged: list[Any] = []

    def train(self) -> str:
        samples = [SimpleNamespace(prompt_id=f"prompt{group}") for group in GROUPS]
        self._postprocess_batch(samples, self.batches)
        self.log(dict(LOGS))
        return "trained"

    def evaluate(self) -> None:
        """Evaluate."""

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        self.logged.append((logs, start_time))

    def _postprocess_batch(self, samples: Any, batch_encoded_inputs: Any) -> None:
        assert len(samples) == len(GROUPS)
        for batch, rows in zip(batch_encoded_inputs, self.rollouts.advantages.split(2), strict=True):
            batch["grpo_batch"].advantages = rows


@pytest.fixture(autouse=True)
def transformers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The base class of callbacks."""
    module = ModuleType("transformers")
    module.TrainerCallback = type("TrainerCallback", (), {})  # type: ignore[attr-defined]
    integrations = ModuleType("transformers.integrations")
    integrations.INTEGRATION_TO_CALLBACK = {}  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", module)
    monkeypatch.setitem(sys.modules, "transformers.integrations", integrations)
    monkeypatch.delitem(sys.modules, "trmon_client.integrations.transformers", raising=False)


def test_micro_batches_are_chunks_of_their_step_and_stay_as_they_are(server: Peer) -> None:
    rollouts = Rollouts.generate()
    plain, trainer = GRPOTrainer(rollouts), GRPOTrainer(rollouts)
    assert type(swift_callback({"learning_rate": 1e-6}, trainer)).__name__ == "SavingCallback"
    assert (plain.train(), trainer.train()) == ("trained", "trained")
    assert_bit_identical(tensors_of(plain.batches), tensors_of(trainer.batches))
    assert plain.logged == trainer.logged
    reports, columns = reported(server, n=2)
    assert [(report.step, report.chunks, report.rank) for report in reports] == [(4, 2, 1)] * 2
    assert_reported(columns, rollouts, has=("rewards", "group_ids", "truncated"))
    (start,) = server.of(wire.Start)
    assert (start.world_size, start.config["learning_rate"]) == (2, 1e-6)
    assert numbers(server) == [], "it is not the main process"


def test_the_main_process_reports_the_numbers_that_it_logs(server: Peer) -> None:
    trainer = GRPOTrainer(Rollouts.generate())
    trainer.accelerator.is_main_process = True
    swift_callback({}, trainer)
    trainer.train()
    assert numbers(server) == [(3, {"loss": 0.25, "grad_norm": 1.5})]


def test_evaluations_pause_the_run_and_their_batches_are_left_out(server: Peer) -> None:
    class EvaluatingTrainer(GRPOTrainer):
        def train(self) -> str:
            self.model.training = False
            self.evaluate()
            return super().train()

    trainer = EvaluatingTrainer(Rollouts.generate())
    swift_callback({}, trainer)
    trainer.train()
    server.wait_for(wire.Finish)
    assert [pause.reason for pause in server.of(wire.Pause)] == ["evaluation"]
    assert not server.of(wire.Report)


def test_sequence_parallel_ranks_report_nothing_and_train(server: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    trainer = GRPOTrainer(Rollouts.generate(), sequence_parallel_size=2)
    swift_callback({}, trainer)
    assert trainer.train() == "trained"
    assert capfd.readouterr().err.count("gives several ranks the same sequences") == 1
    assert not server.messages


def test_the_function_for_an_incident_is_that_of_the_variable(server: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRMON_ON_INCIDENT", "builtins:print")
    trainer = GRPOTrainer(Rollouts.generate())
    callback = swift_callback({}, trainer)
    trainer.train()
    assert callback._on_incident is print
    assert callback._monitor().settings.on_incident is None  # with several ranks it would only say so
