"""Compares exact divergences from hidden states with the fused heads of torch and Liger; prints Markdown tables.

PYTHONPATH=. python benchmarks/bench_streamed_divergence.py [--device cuda]; Liger's row needs liger-kernel.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from stopwatch import extra_mebibytes, milliseconds
from torch.nn import functional as F

from trmon_client.core.divergence import HiddenStates, exact, exact_streamed

THREADS, REPEATS = 2, 3
SHAPES = {"cpu": (256, 512, 32_768), "cuda": (8_192, 4_096, 151_936)}
"""Tokens, hidden size, vocabulary."""


@dataclass(frozen=True)
class Heads:
    """Hidden states of two policies [tokens, hidden] and the weight of their head [vocabulary, hidden]."""

    mu: Any
    pi: Any
    weight: Any
    labels: Any

    @classmethod
    def random(cls, n_tokens: int, *, hidden: int, vocabulary: int, device: str) -> Heads:
        """Return random states whose policies are near each other."""
        torch.manual_seed(0)
        mu = torch.randn(n_tokens, hidden, device=device)
        weight = torch.randn(vocabulary, hidden, device=device) * 3 / hidden**0.5
        labels = torch.randint(0, vocabulary, (n_tokens,), device=device)
        return cls(mu, mu + 0.01 * torch.randn_like(mu), weight, labels)

    def few(self) -> Heads:
        """Return the same for two tokens, for a warm-up."""
        return Heads(self.mu[:2], self.pi[:2], self.weight, self.labels[:2])


def streamed(heads: Heads, **options: Any) -> float:
    """KL, reverse KL and both entropies of every token, in tiles."""
    mask = torch.ones(1, len(heads.mu), dtype=torch.bool, device=heads.mu.device)
    mu, pi = (HiddenStates(hidden[None], heads.weight) for hidden in (heads.mu, heads.pi))
    return float(exact_streamed(rollout_logits=mu, logits=pi, mask=mask, **options)["sum_kl"].sum())


def materialised(heads: Heads) -> float:
    """The same from the logits of all tokens."""
    mask = torch.ones(1, len(heads.mu), dtype=torch.bool, device=heads.mu.device)
    mu, pi = ((hidden @ heads.weight.T)[None] for hidden in (heads.mu, heads.pi))
    return float(exact(rollout_logits=mu, logits=pi, mask=mask)["sum_kl"].sum())


def kl_div(mu: Any, pi: Any, weight: Any) -> Any:
    """KL only, in float32, from the logits of all tokens."""
    log_p, log_q = (F.log_softmax(hidden @ weight.T, dim=-1) for hidden in (mu, pi))
    return F.kl_div(log_q, log_p, reduction="sum", log_target=True)


def compiled(heads: Heads) -> float:
    """KL only, fused by torch.compile."""
    return float(COMPILED(heads.mu, heads.pi, heads.weight))


COMPILED = torch.compile(kl_div)


def liger(heads: Heads) -> float:
    """Liger's fused linear JSD with beta 0, the KL, in chunks of 128 tokens; it computes the gradient as well."""
    from liger_kernel.chunked_loss.jsd_loss import LigerFusedLinearJSDFunction

    student = heads.pi.requires_grad_()
    # Its soft loss is the mean over tokens.
    mean = LigerFusedLinearJSDFunction.apply(
        *(student, heads.weight, heads.mu, heads.weight, heads.labels),
        *(None, None, 0.0, 1.0, 0.0, -100, 1.0, False, 128),
    )
    return float(mean) * len(heads.mu)


def cross_entropy(heads: Heads) -> float:
    """torch's fused head: the log-probs of the sampled tokens under both policies, no divergence."""
    with torch.no_grad():
        return sum(
            float(F.linear_cross_entropy(hidden, heads.weight, heads.labels, reduction="sum"))
            for hidden in (heads.pi, heads.mu)
        )


ROWS: dict[str, Callable[[Heads], float]] = {
    "`F.kl_div` of the logits of all tokens: KL": lambda heads: float(kl_div(heads.mu, heads.pi, heads.weight)),
    "`torch.compile` of it": compiled,
    "`divergence.exact` of the logits of all tokens": materialised,
    "`exact_streamed`: KL, reverse KL, entropies": streamed,
    "`exact_streamed(tv=True)`": lambda heads: streamed(heads, tv=True),
    "Liger's fused linear JSD, beta 0: KL and its gradient": liger,
    "`F.linear_cross_entropy`, both policies: sampled log-probs": cross_entropy,
}


def main(device: str) -> None:
    n_tokens, hidden, vocabulary = SHAPES[device]
    print(
        f"{n_tokens:,} tokens, hidden size {hidden:,}, {vocabulary:,} logits, float32 on {device}, {THREADS} threads of"
    )
    print(f"torch, medians of {REPEATS} runs, load of the machine {os.getloadavg()[0]:.1f}\n")
    print("| what | wall ms | CPU ms | memory beyond states and weight, MiB | KL found |\n|---|---:|---:|---:|---:|")
    for what, row in ROWS.items():
        if row is liger and importlib.util.find_spec("liger_kernel") is None:
            continue
        command = [sys.executable, __file__, "--device", device, "--row", what]
        found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        kl = "-" if row is cross_entropy else f"{found['value']:.6g}"
        print(f"| {what} | {found['wall_ms']:,.0f} | {found['cpu_ms']:,.0f} | {found['extra_mib']:,.0f} | {kl} |")


def measure(what: str, *, device: str) -> None:
    torch.set_num_threads(THREADS)
    n_tokens, hidden, vocabulary = SHAPES[device]
    heads = Heads.random(n_tokens, hidden=hidden, vocabulary=vocabulary, device=device)
    run = ROWS[what]
    # The warm-up excludes imports, compilation and set-up on first use; compiled code is for one shape.
    run(heads if run is compiled else heads.few())
    extra = extra_mebibytes(lambda: run(heads), device=device)
    times = [milliseconds(lambda: run(heads), device=device) for _ in range(REPEATS)]
    wall, cpu = (statistics.median(column) for column in zip(*times, strict=True))
    print(json.dumps({"wall_ms": wall, "cpu_ms": cpu, "extra_mib": extra, "value": run(heads)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=sorted(SHAPES), default="cpu")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.row is None:
        main(arguments.device)
    else:
        measure(arguments.row, device=arguments.device)
