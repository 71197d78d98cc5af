"""Measures `log_batch` of a trainer whose batches are on a CUDA device: python benchmarks/bench_device.py"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from stopwatch import device_milliseconds, extra_mebibytes

import trmon_client as trmon

SHAPES = ((64, 1024), (1024, 8192))
REPEATS = 20
PAUSE_SECONDS = 0.02
"""Between calls, as in a trainer: the encoder's thread sends the report before."""


def main() -> None:
    if not torch.cuda.is_available():
        print("there is no CUDA device: nothing to measure")
        return
    print(f"three policies, advantages and rewards, float32 on {torch.cuda.get_device_name()}; medians of {REPEATS}\n")
    print("| batch | `log_batch` | first call s | calling thread ms | device ms | kernels | extra memory MiB |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for shape in SHAPES:
        for what, options in (("default", {}), ("`triton=True`", {"triton": True})):
            with tempfile.TemporaryDirectory() as folder:
                # An empty cache, so that the first call compiles.
                os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
                with trmon.init(project="bench", run="device", spool_dir=Path(folder), **options) as run:
                    print(f"| {list(shape)} | {what} | {_row(run, batch(shape))} |", flush=True)


def batch(shape: tuple[int, int]) -> dict[str, Any]:
    """Return the arguments of a call, on the device."""
    torch.manual_seed(0)
    rollout = -torch.empty(shape, device="cuda").exponential_(1.0)
    old = (rollout + 1e-2 * torch.randn_like(rollout)).clamp_(max=0.0)
    return {
        "rollout_logprobs": rollout,
        "old_logprobs": old,
        "logprobs": (old + 1e-2 * torch.randn_like(rollout)).clamp_(max=0.0),
        "mask": torch.ones(shape, dtype=torch.bool, device="cuda"),
        "advantages": torch.randn(shape[0], device="cuda"),
        "rewards": torch.rand(shape[0], device="cuda"),
    }


def _row(run: trmon.Monitor, given: dict[str, Any]) -> str:
    steps = iter(range(10_000))

    def log() -> None:
        run.log_batch(step=next(steps), **given)

    first = _seconds(log)
    for _ in range(3):
        # A thread imports Triton, then compiles the kernels.
        for thread in threading.enumerate():
            if thread.name == "trmon-compiler":
                thread.join()
        log()
    times = []
    for _ in range(REPEATS):
        time.sleep(PAUSE_SECONDS)
        torch.cuda.synchronize()
        times.append(1e3 * _seconds(log))
    torch.cuda.synchronize()
    extra = extra_mebibytes(log, device="cuda")
    busy, n_kernels = device_milliseconds(log)
    return f"{first:.1f} | {statistics.median(times):.1f} | {busy:.2f} | {n_kernels:,} | {extra:,.0f}"


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
