"""An AsyncGRPOTrainer with trmon attached, fed by a worker of the test, in real training on the CPU."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AttentionInterface

from tests.peers.trl import tiny
from tests.peers.trl.conftest import Received
from trmon_client.core import wire

async_grpo = pytest.importorskip("trl.experimental.async_grpo", reason="this TRL has no AsyncGRPOTrainer")

SAMPLES_A_STEP = 4


def path_attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *, scaling: float | None = None, **tree: Any
) -> tuple[torch.Tensor, None]:
    """Attend as TRL's `tree_attention` does, whose kernel needs a GPU: each segment to the path from its root."""
    starts, ends = (tree[f"tree_cu_seqlens_{side}"].tolist() for side in "qk")
    rows = []
    for i in range(len(starts) - 1):
        q = query[0, :, starts[i] : starts[i + 1]]
        path = tree["tree_kv_index"][ends[i] : ends[i + 1]]
        k, v = key[0, :, path], value[0, :, path]
        scores = q @ k.transpose(1, 2) * (scaling or q.shape[-1] ** -0.5)
        n_before = k.shape[1] - q.shape[1]
        later = torch.arange(k.shape[1]) > torch.arange(q.shape[1])[:, None] + n_before
        rows.append(scores.masked_fill(later, -torch.inf).softmax(-1) @ v)
    return torch.cat(rows, dim=1).transpose(0, 1)[None], None


class Worker:
    """Generates nothing: its queue is filled before training, with samples of an older and of the newest weights."""

    def __init__(self) -> None:
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        random = np.random.default_rng(0)
        for i in range(10 * SAMPLES_A_STEP):
            length = 4 + i % 3
            mu = np.concatenate([np.zeros(2), random.normal(-3.4, 0.01, length)])
            self.rollout_buffer.put(
                async_grpo.async_rollout_worker.RolloutSample(
                    prompt=[],
                    completion=[],
                    input_ids=np.array([5 + i // 2 % 4, 6, *random.integers(3, 32, length)]),
                    completion_mask=np.array([0, 0, *[1] * length]),
                    old_log_probs=mu,
                    advantage=1.0 if i % 2 else -1.0,
                    model_version=i % 2,
                    group_id=i // 2,
                    metrics={"reward": float(i % 2)},
                )
            )

    def start(self) -> None:
        """Do nothing."""

    stop = start

    def update_model_version(self, model_version: int) -> None:
        """Do nothing."""

    def check_health(self, stale_after_s: float) -> None:
        """Do nothing."""


class NoTransfer:
    """Transfers no weights."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_: None


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the trainer be made without a GPU, whose speed it asks for."""
    monkeypatch.setattr(async_grpo.async_grpo_trainer, "get_peak_flops_per_device", lambda *_: None)


def trainer_of(folder: Path, **given: Any) -> Any:
    """Return a trainer of 3 steps; it syncs weights after each."""
    policy = tiny.model(folder)
    tiny.tokenizer().save_pretrained(folder / "model")
    policy.save_pretrained(folder / "model")
    arguments = {**tiny.arguments(folder), "max_steps": 3, "weight_sync_steps": 1, "token_budget": 0}
    trainer = async_grpo.AsyncGRPOTrainer(
        model=str(folder / "model"),
        reward_funcs=tiny.word_sum,
        args=async_grpo.AsyncGRPOConfig(**{**arguments, "dtype": "float32", **given}),
        train_dataset=tiny.prompts(),
        processing_class=tiny.tokenizer(),
        rollout_worker=Worker(),
        weight_transfer=NoTransfer(),
    )
    AttentionInterface.register("tree_fa3", path_attention)
    return trainer


@pytest.mark.parametrize("given", [{}, {"token_budget": 24, "gradient_accumulation_steps": 2}], ids=str)
def test_observed_training_is_equal_to_the_last_bit(tmp_path: Path, received: Received, given: dict[str, Any]) -> None:
    alone = trainer_of(tmp_path, **given)
    before = [parameter.detach().clone() for parameter in alone.model.parameters()]
    alone.train()
    watched = received.train(trainer_of(tmp_path, **given))
    for one, other in zip(watched.model.parameters(), alone.model.parameters(), strict=True):
        assert torch.equal(one, other)
    assert not all(torch.equal(one, other) for one, other in zip(watched.model.parameters(), before, strict=True))
    accumulation = given.get("gradient_accumulation_steps", 1)
    assert received.keys == [(step, None, chunk, accumulation) for step in range(3) for chunk in range(accumulation)]


def test_samples_have_their_rewards_groups_and_versions(tmp_path: Path, received: Received) -> None:
    trainer = received.train(trainer_of(tmp_path))
    for step, (columns, report) in enumerate(zip(received.columns, received.of(wire.Report), strict=True)):
        logged = trainer.state.log_history[step]
        assert columns.pairs == ("total",)
        assert sorted(columns["group_id"].tolist()) == [2 * step, 2 * step, 2 * step + 1, 2 * step + 1]
        assert columns["reward"].mean() == pytest.approx(logged["reward"])
        # The reward of a sample is its version, and decides the sign of its advantage.
        assert columns["version_min"].tolist() == columns["reward"].tolist()
        assert np.sign(columns["advantage"]).tolist() == np.sign(columns["reward"] - 0.5).tolist()
        assert report.trainer_version == step + 1
        assert columns["n_tokens"].sum() == logged["batch/trained_tokens_per_step"]
        assert received.signals(step)["total_kl_k3"] == pytest.approx(logged["kl"], rel=1e-3)
        assert received.scalars("loss")[step] == logged["loss"]


def test_enforcing_is_refused_and_observes(
    tmp_path: Path, received: Received, capfd: pytest.CaptureFixture[str]
) -> None:
    received.train(trainer_of(tmp_path), mode="enforce")
    assert capfd.readouterr().err.count("mode observe") >= 1
    assert {report.mode for report in received.of(wire.Report)} == {"observe"}
