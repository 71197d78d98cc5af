"""Compares exact divergences with F.kl_div: time, and memory beyond the logits; prints a Markdown table.

PYTHONPATH=. python benchmarks/bench_divergence.py [--device cuda]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from stopwatch import extra_mebibytes, milliseconds, read_bytes_per_second
from torch.nn import functional as F

from trmon_client.core.divergence import divergence_columns

THREADS, REPEATS = 2, 5
SHAPES = {"cpu": (512, 32_768), "cuda": (8_192, 151_936)}
SMALL_KL = 5e-7


def exact(a: Any, b: Any, **options: Any) -> Any:
    """KL, reverse KL, both entropies, and the work of reducing them."""
    mask = torch.ones(1, len(a), dtype=torch.bool, device=a.device)
    return divergence_columns.exact(rollout_logits=a[None], logits=b[None], mask=mask, **options)["sum_kl"]


def kl_div(a: Any, b: Any) -> Any:
    """KL only, in float32, as most trainers compute it."""
    log_q, p = F.log_softmax(b.float(), dim=-1), F.softmax(a.float(), dim=-1)
    return F.kl_div(log_q, p, reduction="none").sum(-1).sum()


ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "`F.kl_div(log_softmax, softmax)`: KL": kl_div,
    "`torch.compile` of it": torch.compile(kl_div),
    "`divergence.exact`: KL, reverse KL, entropies": exact,
    "`divergence.exact(tv=True)`": lambda a, b: exact(a, b, tv=True),
    '`divergence.exact(backend="triton")`': lambda a, b: exact(a, b, backend="triton"),
}
ON_CUDA_ONLY = ("`torch.compile` of it", '`divergence.exact(backend="triton")`')


def main(device: str) -> None:
    tokens, vocabulary = SHAPES[device]
    speed = read_bytes_per_second() if device == "cuda" else None
    print(
        f"{tokens:,} tokens x {vocabulary:,} logits on {device}, {THREADS} threads of torch, medians of {REPEATS} runs,"
    )
    if speed is not None:
        print(f"{torch.cuda.get_device_name()}, a copy moves {speed / 1e12:.2f} TB/s,")
    print(f"load of the machine {os.getloadavg()[0]:.1f}\n")
    print("| logits | what | wall ms | CPU ms | time, relative | of the bandwidth | memory beyond the logits, MiB |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for dtype in ("float32", "bfloat16"):
        reference: dict[str, float] = {}
        for what in ROWS:
            if device == "cpu" and what in ON_CUDA_ONLY:
                continue
            found = _measured(what, dtype=dtype, device=device)
            reference = reference or found
            # Other load on the machine lengthens wall time only; a device has no CPU time.
            clock = "cpu_ms" if device == "cpu" else "wall_ms"
            wall = f"{found['wall_ms']:,.{0 if device == 'cpu' else 2}f}"
            times = f"{wall} | {found['cpu_ms']:,.0f} | {found[clock] / reference[clock]:.2f}"
            share = "-" if speed is None else f"{found['read_bytes'] / (found['wall_ms'] / 1e3) / speed:.0%}"
            print(f"| {dtype} | {what} | {times} | {share} | {found['extra_mib']:,.0f} |")
    _print_accuracy()


def _measured(what: str, *, dtype: str, device: str) -> dict[str, float]:
    """Return the cost of one row; on the host from a new process, whose peak of memory no other row has raised."""
    if device == "cuda":
        return measure(what, dtype=dtype, device=device)
    command = [sys.executable, __file__, "--device", device, "--row", what, "--dtype", dtype]
    found: dict[str, float] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def measure(what: str, *, dtype: str, device: str) -> dict[str, float]:
    torch.set_num_threads(THREADS)
    a = torch.empty(SHAPES[device], dtype=getattr(torch, dtype), device=device).normal_(0, 3)
    b = a.clone()
    b[:, ::7] += 0.05
    run = ROWS[what]
    # The warm-up excludes imports, compilation and set-up on first use.
    run(a[:2], b[:2])
    extra = extra_mebibytes(lambda: run(a, b), device=device)
    times = [milliseconds(lambda: run(a, b), device=device) for _ in range(REPEATS)]
    wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
    return {"wall_ms": wall, "cpu_ms": cpu, "extra_mib": extra, "read_bytes": 2 * a.numel() * a.itemsize}


def _print_accuracy() -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.empty(64, 32_768, dtype=torch.float64).normal_(0, 3, generator=generator)
    b = a + (2 * SMALL_KL) ** 0.5 * torch.randn(a.shape, dtype=torch.float64, generator=generator)
    single = (a.float(), b.float())
    log_p, log_q = (F.log_softmax(logits.double(), dim=-1) for logits in single)
    reference = (log_p.exp() * (log_p - log_q)).sum().item()
    print(f"\nKL of {reference / len(a):.1e} a token from float32 logits, relative error against float64\n")
    print("| what | error |\n|---|---:|")
    for what, found in (("`divergence.exact`", exact(*single)), ("`F.kl_div` in float32", kl_div(*single))):
        print(f"| {what} | {abs(float(found.sum()) / reference - 1):.1e} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=sorted(SHAPES), default="cpu")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--dtype", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row is None:
        main(arguments.device)
    else:
        print(json.dumps(measure(arguments.row, dtype=arguments.dtype, device=arguments.device)))
