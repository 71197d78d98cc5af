"""The trainer, shaped as in SkyRL 0.3.0: skyrl/train/trainer.py, skyrl/backends/skyrl_train/training_batch.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.client.integrations.rollouts import (
    GROUPS,
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
from trmon_client.integrations.skyrl import attach_skyrl


class TrainingInputBatch(dict[str, Any]):
    """Tensors [B, T] by name, and values that are no tensors."""

    def __init__(self, tensors: dict[str, Any], *, metadata: dict[str, Any]) -> None:
        super().__init__(tensors)
        self.metadata = metadata


class RayPPOTrainer:
    """What `attach_skyrl` uses of a trainer at its fifth step."""

    def __init__(self) -> None:
        self.cfg = SimpleNamespace(
            trainer=SimpleNamespace(project_name="skyrl", run_name="test run", wandb_token="hush")
        )
        self.global_step = 5
        self.callbacks: list[Any] = []

    def add_callback(self, callback: Any) -> None:
        self.callbacks.append(callback)

    def compute_advantages_and_returns(self, data: TrainingInputBatch) -> TrainingInputBatch:
        data["advantages"] = data["returns"] = Rollouts.generate().advantages[[0, 1, 2, 3, 0]]
        return data


def padded(rollouts: Rollouts) -> TrainingInputBatch:
    """Return the rollouts and a row of padding, as `pad_training_input_batch` adds it."""
    rows = [0, 1, 2, 3, 0]
    mask = rollouts.mask[rows]
    mask[-1] = 0
    rewards = torch.zeros(mask.shape)
    rewards[:, 0] = rollouts.rewards[rows]
    tensors = {
        "rollout_logprobs": rollouts.mu[rows],
        "action_log_probs": rollouts.old[rows],
        "loss_mask": mask,
        "response_mask": mask,
        "rewards": rewards,
        "values": None,
    }
    uids = [*(f"prompt{group}" for group in GROUPS), "pad0"]
    return TrainingInputBatch(tensors, metadata={"uids": uids, "pad_size": 1})


def test_a_batch_is_reported_without_its_padding(server: Peer) -> None:
    rollouts, trainer = Rollouts.generate(), RayPPOTrainer()
    expected = tensors_of(RayPPOTrainer().compute_advantages_and_returns(padded(rollouts)))
    attach_skyrl(trainer)
    assert_bit_identical(expected, tensors_of(trainer.compute_advantages_and_returns(padded(rollouts))))
    (report,), columns = reported(server)
    assert (report.step, report.update, report.chunks) == (5, None, 1)
    assert_reported(columns, rollouts, has=("rewards", "group_ids"))


def test_the_callback_reports_numbers_pauses_and_the_end(server: Peer) -> None:
    trainer = RayPPOTrainer()
    attach_skyrl(trainer)
    (callback,) = trainer.callbacks
    event = SimpleNamespace(global_step=5, logs={"policy/loss": 0.25, "vllm": "a text"}, ckpt_path="/c/global_step_5")
    for name in ("train_start", "epoch_start", "step_start", "step_end", "eval_start", "eval_end", "save", "log"):
        getattr(callback, f"on_{name}")(trainer, event, SimpleNamespace())
    callback.on_epoch_end(trainer, event, SimpleNamespace())
    callback.on_train_end(trainer, event, SimpleNamespace())
    assert numbers(server) == [(5, {"policy/loss": 0.25})]
    assert [pause.reason for pause in server.of(wire.Pause)] == ["evaluation", "checkpoint"]
    assert checkpoints(server) == [(5, "/c/global_step_5")]


def test_a_checkpoint_is_asked_for_at_a_warning(server: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRMON_CHECKPOINT_ON_WARNING", "1")
    trainer = RayPPOTrainer()
    attach_skyrl(trainer)
    (callback,) = trainer.callbacks
    callback._monitor.advice_cache.update({"step": 4, "save_checkpoint": True})
    asked = [SimpleNamespace(should_save=False) for _ in range(2)]
    for control in asked:
        callback.on_step_end(trainer, SimpleNamespace(global_step=5), control)
    assert [control.should_save for control in asked] == [True, False]


def test_the_function_for_an_incident_is_called_on_the_driver(server: Peer) -> None:
    trainer, told = RayPPOTrainer(), list[Any]()
    attach_skyrl(trainer, on_incident=told.append)
    (callback,) = trainer.callbacks
    callback._monitor.advice_cache.update({"step": 4, "incident": {"opened_step": 4, "severity": "page"}})
    for _ in range(2):
        trainer.compute_advantages_and_returns(padded(Rollouts.generate()))
    assert [incident["severity"] for incident in told] == ["page"]


def test_a_batch_whose_forward_was_skipped_has_no_pair(server: Peer) -> None:
    trainer, batch = RayPPOTrainer(), padded(Rollouts.generate())
    batch["action_log_probs"] = None
    attach_skyrl(trainer)
    trainer.compute_advantages_and_returns(batch)
    _, columns = reported(server)
    assert not columns.pairs


def test_another_version_is_named_once_and_left_as_it_is(server: Peer, capfd: pytest.CaptureFixture[str]) -> None:
    class OlderTrainer(RayPPOTrainer):
        add_callback = None  # type: ignore[assignment]

    for _ in range(2):
        trainer = OlderTrainer()
        attach_skyrl(trainer)
        assert "advantages" in trainer.compute_advantages_and_returns(padded(Rollouts.generate()))
    assert capfd.readouterr().err.count("lacks add_callback(callback)") == 1
    assert not server.messages
