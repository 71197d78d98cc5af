"""Compares the columns of large batches by NumPy, by the compiled kernels and, if installed, with verl's functions.

Prints a Markdown table. PYTHONPATH=. python benchmarks/bench_compiled.py, with numba installed
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from bench_columns import FULL, METRICS, OURS, THREADS, batch, contenders
from stopwatch import milliseconds

from trmon_client.core.large_batches.compiled.kernel_loading import KERNELS

REPEATS = 7
ROUNDS = 3
COMPILED = "compiled"
CASES: dict[str, dict[str, Any]] = {
    "[1024, 8192], full": {"shape": (1024, 8192), "noise": 1e-2, "is_full": True},
    "[1024, 8192], 1/8 to full": {"shape": (1024, 8192), "noise": 1e-2, "is_full": False},
    "[256, 4096], d of about 1": {"shape": (256, 4096), "noise": 1.0, "is_full": True},
    "[256, 4096], d of about 12": {"shape": (256, 4096), "noise": 12.0, "is_full": True},
}
Times = dict[str, list[float]]
"""The median wall and CPU milliseconds of each case."""


def measure(what: str) -> Times:
    """Return the times of NumPy, of the compiled kernels or of a function of verl, on two threads."""
    torch.set_num_threads(THREADS)
    if what == COMPILED:
        KERNELS.start(sys.exit)
        if not KERNELS.wait(timeout_seconds=300):
            sys.exit("the kernels are not loaded: install trmon-client[numba]")
    compared = contenders("cpu")[OURS if what == COMPILED else what]
    found = {}
    for name, case in CASES.items():
        call = partial(compared, **batch(**case))
        call()
        times = [milliseconds(call, device="cpu") for _ in range(REPEATS)]
        found[name] = [statistics.median(column) for column in zip(*times, strict=True)]
    return found


def main() -> None:
    """Run each in a process of its own, in turn."""
    kinds = (OURS, COMPILED, *((FULL, METRICS) if find_spec("verl") else ()))
    before = os.getloadavg()[0]
    rounds = [{kind: _measured_apart(kind) for kind in kinds} for _ in range(ROUNDS)]
    print(f"one pair, float32, {THREADS} threads, medians of {ROUNDS} rounds of {REPEATS} runs, ", end="")
    print(f"load of the machine {before:.1f} before and {os.getloadavg()[0]:.1f} after\n")
    print("| batch | what | wall ms | CPU ms | wall, times compiled | CPU, times compiled |")
    print("|---|---|---:|---:|---:|---:|")
    for name in CASES:
        for kind in kinds:
            cells = (f"{value:,.1f}" for value in _medians(rounds, kind, name))
            ratios = (f"{value:.1f}" for value in _ratios(rounds, kind, name))
            print(f"| {name} | {kind} | {' | '.join(cells)} | {' | '.join(ratios)} |")


def _medians(rounds: list[dict[str, Times]], kind: str, case: str) -> list[float]:
    return [statistics.median(times) for times in zip(*(each[kind][case] for each in rounds), strict=True)]


def _ratios(rounds: list[dict[str, Times]], kind: str, case: str) -> list[float]:
    """Return the medians of the ratios of each round: the machine's speed changes from round to round."""
    ratios = [
        [theirs / ours for theirs, ours in zip(each[kind][case], each[COMPILED][case], strict=True)] for each in rounds
    ]
    return [statistics.median(column) for column in zip(*ratios, strict=True)]


def _measured_apart(what: str) -> Times:
    done = subprocess.run([sys.executable, __file__, what], check=True, capture_output=True, text=True)
    # verl prints to the same stream.
    found: Times = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1])))
    else:
        main()
