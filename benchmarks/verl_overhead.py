"""Measures what the verl plugin costs the driver for each batch, and verl's calculate_debug_metrics of that batch.

PYTHONPATH=. .venv-peers/bin/python benchmarks/verl_overhead.py

Prints the CPU time of a batch: medians of the driver's thread, and the mean of the whole process, with the client's own
threads, which encode the reports and write them to the spool.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from omegaconf import OmegaConf
from verl import DataProto
from verl.utils.debug.metrics import calculate_debug_metrics

from trmon_client import init
from trmon_client.integrations.verl.hooks import verl_arguments

ROWS, TOKENS, ROUNDS = 256, 4096, 7


def batch() -> DataProto:
    """Return a batch whose responses fill three quarters of its tokens."""
    generator = torch.Generator().manual_seed(0)
    mu = -torch.empty((ROWS, TOKENS)).exponential_(generator=generator)
    old = (mu + 0.01 * torch.randn(mu.shape, generator=generator)).clamp(max=0)
    lengths = torch.randint(TOKENS // 2, TOKENS + 1, (ROWS, 1), generator=generator)
    mask = (torch.arange(TOKENS) < lengths).long()
    tensors = {
        "responses": torch.ones((ROWS, TOKENS), dtype=torch.long),
        "attention_mask": mask,
        "response_mask": mask,
        "rollout_log_probs": mu,
        "old_log_probs": old,
        "advantages": torch.randn((ROWS, 1), generator=generator).expand(-1, TOKENS).contiguous(),
        "token_level_scores": torch.zeros((ROWS, TOKENS)),
    }
    return DataProto.from_dict(tensors=tensors, non_tensors={"uid": np.arange(ROWS) // 8})


def seconds(call: Callable[[int], Any], clock: Callable[[], float]) -> float:
    """Return the median time of a call, after one that does not count."""
    times = []
    for number in range(ROUNDS + 1):
        begin = clock()
        call(number)
        times.append(clock() - begin)
    return statistics.median(times[1:])


def main() -> None:
    """Measure both on two threads of PyTorch."""
    torch.set_num_threads(2)
    data = batch()
    trainer = SimpleNamespace(global_steps=0, config=OmegaConf.create({"algorithm": {}}))
    with TemporaryDirectory() as folder:
        monitor = init(project="math", run="verl", spool_dir=folder, rank=0, world_size=1)

        def report(_: int) -> None:
            trainer.global_steps += 1
            monitor.log_batch(**verl_arguments(trainer, data))

        rows = {
            "calculate_debug_metrics": seconds(lambda _: calculate_debug_metrics(data), time.process_time),
            "trmon, the driver's thread": seconds(report, time.thread_time),
        }
        begin = time.process_time()
        for number in range(ROUNDS):
            report(number)
        monitor.close()
        rows["trmon, all threads"] = (time.process_time() - begin) / ROUNDS
    print(f"{ROWS} x {TOKENS} tokens, torch {torch.__version__} on {torch.get_num_threads()} threads")
    for name, value in rows.items():
        print(f"{name:40} {1000 * value:7.1f} ms")


if __name__ == "__main__":
    main()
