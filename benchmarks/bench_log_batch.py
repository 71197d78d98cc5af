"""Measures the cost of one `log_batch` to the trainer's thread: python benchmarks/bench_log_batch.py"""

from __future__ import annotations

import itertools
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import trmon_client as trmon

SHAPES = ((8, 64), (96, 16), (64, 1024), (256, 4096))
GAP_SECONDS = 0.02
"""The trainer's pause between two calls, in which the encoder runs and the caches cool."""
N_WARM = 5
"""Calls before those that are measured."""
N_TURNS = 8
"""Turns of each sequence, in the rows with turns."""
N_IDS = 150_000
"""Size of the vocabulary, in the rows with token ids."""


def batch(n_sequences: int, horizon: int, *, beside: str = "") -> dict[str, Any]:
    """Return the log-probs of three policies and all labels, and beside them equal "turns" or the "ids" of tokens."""
    starts = [[turn * horizon // N_TURNS for turn in range(N_TURNS)]] * n_sequences
    generator = torch.Generator().manual_seed(0)
    mu = -torch.rand((n_sequences, horizon), generator=generator) - 0.1
    old = mu + 1e-3 * torch.randn(mu.shape, generator=generator)
    return {
        "rollout_logprobs": mu,
        "old_logprobs": old,
        "logprobs": old + 1e-3 * torch.randn(mu.shape, generator=generator),
        "mask": torch.ones(mu.shape, dtype=torch.bool),
        "advantages": torch.randn(n_sequences, generator=generator),
        "rewards": torch.rand(n_sequences, generator=generator),
        "group_ids": torch.arange(n_sequences) // 8,
        "versions": torch.zeros(n_sequences, dtype=torch.int64),
        "turn_offsets": starts if beside == "turns" else None,
        "token_ids": torch.randint(0, N_IDS, mu.shape, generator=generator) if beside == "ids" else None,
    }


def call_seconds(
    monitor: trmon.Monitor, arguments: dict[str, Any], *, gap_seconds: float, n: int
) -> list[tuple[float, float]]:
    """Return the wall time and the calling thread's CPU time of every call except the first ones."""
    found = []
    for step in range(n + N_WARM):
        wall, cpu = time.perf_counter(), time.thread_time()
        monitor.log_batch(step=step, trainer_version=step, **arguments)
        found.append((time.perf_counter() - wall, time.thread_time() - cpu))
        time.sleep(gap_seconds)
    return found[N_WARM:]


def main() -> None:
    print(f"log_batch, three pairs and all labels, CPU tensors, torch threads {torch.get_num_threads()}, in ms")
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    print(f"{'shape':>12} {'beside':>6} {'gap':>6} {'median':>8} {'p95':>8} {'CPU':>8} {'bytes':>8}")
    for shape, beside, gap_seconds in itertools.product(SHAPES, ("", "turns", "ids"), (0.0, GAP_SECONDS)):
        arguments, n = batch(*shape, beside=beside), 200 if shape[1] < 2000 else 20
        with tempfile.TemporaryDirectory() as folder:
            monitor = trmon.init(project="bench", run="log-batch", spool_dir=Path(folder))
            times = call_seconds(monitor, arguments, gap_seconds=gap_seconds, n=n)
            monitor.close()
            report_bytes = sum(path.stat().st_size for path in Path(folder).rglob("*.seg")) / (n + N_WARM)
        wall, cpu = (1e3 * np.array(column) for column in zip(*times, strict=True))
        median, p95, cpu_median = np.quantile(wall, 0.5), np.quantile(wall, 0.95), np.quantile(cpu, 0.5)
        columns = f"{beside:>6} {1e3 * gap_seconds:6.0f} {median:8.3f} {p95:8.3f} {cpu_median:8.3f}"
        print(f"{shape!s:>12} {columns} {report_bytes:8.0f}")


if __name__ == "__main__":
    main()
