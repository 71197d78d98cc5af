"""Measures what a projection of a gradient costs compared with clipping it; prints a Markdown table.

python benchmarks/bench_gradient_sketch.py [--device cuda]
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Callable
from typing import Any

import torch
from stopwatch import milliseconds

from trmon_client.gradient_sketch import GradientSketch

THREADS, REPEATS = 2, 5
LAYERS, WIDTH = 6, 2_048
"""A model of 6 layers with four square matrices each: 101 million parameters, whose gradients take 384 MiB."""


def main(device: str) -> None:
    torch.set_num_threads(THREADS)
    parameters = [torch.nn.Parameter(torch.empty(WIDTH, WIDTH, device=device)) for _ in range(4 * LAYERS)]
    for parameter in parameters:
        parameter.grad = torch.randn(WIDTH, WIDTH, device=device)
    sketch = GradientSketch()
    rows: dict[str, Callable[[], Any]] = {
        "`torch.nn.utils.get_total_norm`": lambda: torch.nn.utils.get_total_norm([one.grad for one in parameters]),
        "`GradientSketch.cosine`": lambda: sketch.cosine(parameters),
    }
    print(f"{sum(map(torch.Tensor.numel, parameters)):,} float32 gradients on {device}, {THREADS} threads of torch,")
    print(f"medians of {REPEATS} runs, load of the machine {os.getloadavg()[0]:.1f}\n")
    print("| what | wall ms | CPU ms |\n|---|---:|---:|")
    for what, run in rows.items():
        run()
        times = [milliseconds(run, device=device) for _ in range(REPEATS)]
        wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"| {what} | {wall:,.1f} | {cpu:,.1f} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    main(parser.parse_args().device)
