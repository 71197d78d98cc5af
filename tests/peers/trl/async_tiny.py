"""An AsyncGRPOTrainer of a tiny model on the CPU, fed by a worker that generates nothing."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer
from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

from tests.peers.trl import tiny

SAMPLES = 80


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
    """Its queue is filled before training; of each group, one sample has version 0 and reward 0, the other 1 and 1."""

    def __init__(self) -> None:
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        random = np.random.default_rng(0)
        for i in range(SAMPLES):
            length = 4 + i % 3
            sample = RolloutSample(
                prompt=[],
                completion=[],
                input_ids=np.array([5 + i // 2 % 4, 6, *random.integers(3, 32, length)]),
                completion_mask=np.array([0, 0, *[1] * length]),
                old_log_probs=np.concatenate([np.zeros(2), random.normal(-3.4, 0.01, length)]),
                advantage=1.0 if i % 2 else -1.0,
                model_version=i % 2,
                group_id=i // 2,
                metrics={"reward": float(i % 2)},
            )
            self.rollout_buffer.put(sample)

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


def async_grpo(folder: Path, **given: Any) -> AsyncGRPOTrainer:
    """Return a trainer of 3 steps, which synchronises its weights after each."""
    # It asks for the speed of the GPU.
    async_grpo_trainer.get_peak_flops_per_device = lambda *_: None
    tiny.model(folder)
    tiny.tokenizer().save_pretrained(folder / "model")
    steps = {"max_steps": 3, "weight_sync_steps": 1, "token_budget": 0, "dtype": "float32"}
    trainer = AsyncGRPOTrainer(
        model=str(folder / "model"),
        reward_funcs=tiny.word_sum,
        args=AsyncGRPOConfig(**{**tiny.arguments(folder), **steps, **given}),
        train_dataset=tiny.prompts(),
        processing_class=tiny.tokenizer(),
        rollout_worker=Worker(),
        weight_transfer=NoTransfer(),
    )
    AttentionInterface.register("tree_fa3", path_attention)
    return trainer
