"""Exact divergences beside F.kl_div on the CPU: time, and memory beyond the logits; prints a Markdown table.

python tests/benchmarks/bench_divergence.py
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from trmon_client.core import divergence

TOKENS, VOCABULARY, THREADS, REPEATS = 512, 32_768, 2, 5
DTYPES = ("float32", "bfloat16")


def ours(a: Any, b: Any) -> Any:
    """KL, reverse KL, both entropies and what they reduce to."""
    return divergence.exact(rollout_logits=a[None], logits=b[None], mask=torch.ones(1, len(a)))["sum_kl"]


def ours_with_tv(a: Any, b: Any) -> Any:
    """The same and total variation."""
    return divergence.exact(rollout_logits=a[None], logits=b[None], mask=torch.ones(1, len(a)), tv=True)["sum_kl"]


def kl_div(a: Any, b: Any) -> Any:
    """KL only, as trainers write it: in float32."""
    log_q, p = F.log_softmax(b.float(), dim=-1), F.softmax(a.float(), dim=-1)
    return F.kl_div(log_q, p, reduction="none").sum(-1).sum()


ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "`F.kl_div(log_softmax, softmax)`: KL": kl_div,
    "`divergence.exact`: KL, reverse KL, entropies": ours,
    "`divergence.exact(tv=True)`": ours_with_tv,
}


def main() -> None:
    """Measure every row in a process of its own and print the table."""
    print(f"{TOKENS} tokens x {VOCABULARY:,} logits, {THREADS} threads of torch, the best of {REPEATS} runs\n")
    print("| logits | what | ms | time, relative | memory beyond the logits, MiB |\n|---|---|---:|---:|---:|")
    for dtype in DTYPES:
        reference_ms = 0.0
        for what in ROWS:
            command = [sys.executable, __file__, what, dtype]
            found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
            reference_ms = reference_ms or found["ms"]
            relative = f"{found['ms'] / reference_ms:.2f}"
            print(f"| {dtype} | {what} | {found['ms']:.0f} | {relative} | {found['extra_mib']:.0f} |")


def measure(what: str, dtype: str) -> None:
    """Print what one row takes, as JSON."""
    torch.set_num_threads(THREADS)
    generator = torch.Generator().manual_seed(0)
    a = torch.empty(TOKENS, VOCABULARY, dtype=getattr(torch, dtype)).normal_(0, 3, generator=generator)
    b = a.clone()
    b[:, ::7] += 0.05
    run = ROWS[what]
    # What is imported and set up on first use is no part of it.
    run(a[:2], b[:2])
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        run(a, b)
        times.append(time.perf_counter() - began)
    extra_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib
    print(json.dumps({"ms": min(times) * 1e3, "extra_mib": extra_kib / 1024}))


if __name__ == "__main__":
    measure(*sys.argv[1:]) if len(sys.argv) > 1 else main()
