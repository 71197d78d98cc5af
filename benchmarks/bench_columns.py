"""Compares the columns of a large batch with verl's metrics, if verl is installed; prints Markdown tables.

PYTHONPATH=. .venv-peers/bin/python benchmarks/bench_columns.py [--device cuda]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from stopwatch import device_milliseconds, extra_mebibytes, milliseconds, read_bytes_per_second

from trmon_client.core.statistics import columns

SHAPE = (1024, 8192)
THREADS = 2
REPEATS = 5
SMALL_D = 1e-4
OURS, FULL, METRICS = "trmon: every column, the histogram", "verl: metrics and rejection", "verl: metrics only"
FUSED = 'trmon: the same, backend="triton"'


def batch(shape: tuple[int, int], *, noise: float, is_full: bool, device: str = "cpu") -> dict[str, Any]:
    """Return float32 log-probs and the int64 mask that verl uses; responses are full, or of 1/8 to full length."""
    generator = torch.Generator().manual_seed(0)
    new = -torch.empty(shape).exponential_(1.0, generator=generator)
    rollout = (new + noise * torch.randn(shape, generator=generator)).clamp_(max=0.0)
    shortest = shape[1] if is_full else shape[1] // 8
    lengths = torch.randint(shortest, shape[1] + 1, (shape[0], 1), generator=generator)
    given = {"old": new, "rollout": rollout, "mask": (torch.arange(shape[1]) < lengths).long()}
    return {name: tensor.to(device) for name, tensor in given.items()}


def ours(old: Any, rollout: Any, mask: Any) -> Any:
    return columns(rollout_logprobs=rollout, old_logprobs=old, mask=mask)


def fused(old: Any, rollout: Any, mask: Any) -> Any:
    return columns(rollout_logprobs=rollout, old_logprobs=old, mask=mask, backend="triton")


def contenders(device: str) -> dict[str, Callable[..., Any]]:
    """Return the compared functions; verl's are called as in its trainer, with token TIS and seq_mean_k3."""
    own = {OURS: ours, FUSED: fused} if device == "cuda" else {OURS: ours}
    if find_spec("verl") is None:
        return own
    from verl.trainer.ppo import rollout_corr_helper as verl

    def full(old: Any, rollout: Any, mask: Any) -> Any:
        return verl.compute_rollout_correction_and_rejection_mask(
            old, rollout, mask, rollout_is="token", rollout_rs="seq_mean_k3", rollout_rs_threshold=0.01
        )

    def metrics(old: Any, rollout: Any, mask: Any) -> Any:
        return verl.compute_offpolicy_metrics(old_log_prob=old, rollout_log_prob=rollout, response_mask=mask)

    return {**own, FULL: full, METRICS: metrics}


def main(device: str) -> None:
    torch.set_num_threads(THREADS)
    if find_spec("verl") is None:
        print("verl is not installed: `make peers` creates an environment with it")
    print(
        f"one pair, {list(SHAPE)} float32 on {_name(device)}, {THREADS} threads, medians of {REPEATS} interleaved runs,"
    )
    print(f"load of the machine {os.getloadavg()[0]:.1f} before and ", end="")
    rows = [row for is_full in (True, False) for row in _rows(device, is_full=is_full)]
    print(f"{os.getloadavg()[0]:.1f} after\n")
    second, times = ("device ms", "kernels") if device == "cuda" else ("CPU ms", "CPU, times ours")
    print(f"| responses | what | wall ms | {second} | wall, times ours | {times} | extra memory MiB |")
    print("|---|---|---:|---:|---:|---:|---:|")
    print("\n".join(rows))
    if device == "cuda":
        _print_bandwidth()
    _print_accuracy()


def _rows(device: str, *, is_full: bool) -> list[str]:
    given = batch(SHAPE, noise=1e-2, is_full=is_full, device=device)
    calls = {name: partial(call, **given) for name, call in contenders(device).items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for call in calls.values() if device == "cuda" else ():
        # The first call compiles the kernel.
        call()
    for _ in range(REPEATS):
        for name, call in calls.items():
            found[name].append(milliseconds(call, device=device))
    medians = {
        name: [statistics.median(column) for column in zip(*times, strict=True)] for name, times in found.items()
    }
    responses = "full" if is_full else "1/8 to full"
    our_wall, our_cpu = medians[FUSED if device == "cuda" else OURS]
    rows = []
    for name, (wall, cpu) in medians.items():
        if device == "cuda":
            busy, n_kernels = device_milliseconds(calls[name])
            second, times = f"{busy:,.2f}", f"{n_kernels:,}"
        else:
            second, times = f"{cpu:,.0f}", f"{cpu / our_cpu:.1f}"
        extra = _extra(name, device=device, is_full=is_full, given=given)
        digits = 2 if device == "cuda" else 0
        rows.append(
            f"| {responses} | {name} | {wall:,.{digits}f} | {second} | {wall / our_wall:.1f} | {times} | {extra:,.0f} |"
        )
    return rows


def _name(device: str) -> str:
    return torch.cuda.get_device_name() if device == "cuda" else device


def _extra(name: str, *, device: str, is_full: bool, given: dict[str, Any]) -> float:
    """Return the growth of peak memory by one call; on the host, of a new process after a small warm-up call."""
    if device == "cuda":
        return extra_mebibytes(partial(contenders(device)[name], **given), device=device)
    command = [sys.executable, __file__, "--device", device, "--extra-of", name, *(["--full"] if is_full else [])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def _print_extra(name: str, *, device: str, is_full: bool) -> None:
    torch.set_num_threads(THREADS)
    call = contenders(device)[name]
    call(**batch((16, SHAPE[1]), noise=1e-2, is_full=is_full, device=device))
    print(extra_mebibytes(partial(call, **batch(SHAPE, noise=1e-2, is_full=is_full, device=device)), device=device))


def _print_bandwidth() -> None:
    given = batch(SHAPE, noise=1e-2, is_full=True, device="cuda")
    given["mask"] = given["mask"].bool()
    read_bytes, bandwidth = sum(tensor.nbytes for tensor in given.values()), read_bytes_per_second()
    print(f"\nwith a bool mask; a copy moves {bandwidth / 1e12:.2f} TB/s")
    for name, call in ((OURS, ours), (FUSED, fused)):
        busy, _ = device_milliseconds(partial(call, **given))
        print(f"\n{name}: {busy:.2f} ms, {read_bytes / (busy / 1e3) / bandwidth:.0%} of the bandwidth")
    busy = _kernel_milliseconds(given)
    print(f"\nits kernel alone: {busy:.3f} ms, {read_bytes / (busy / 1e3) / bandwidth:.0%} of the bandwidth")


def _kernel_milliseconds(given: dict[str, Any]) -> float:
    from triton.testing import do_bench

    from trmon_client.core.inputs.checked_inputs import check_inputs
    from trmon_client.core.reduction.token_terms import DEFAULT_CLIP
    from trmon_client.core.triton_columns.reduce import reduce_stretches

    inputs = check_inputs(rollout_logprobs=given["rollout"], old_logprobs=given["old"], mask=given["mask"])
    return float(do_bench(partial(reduce_stretches, inputs, clip=DEFAULT_CLIP), return_mode="median"))


def _print_accuracy() -> None:
    given = batch((64, SHAPE[1]), noise=SMALL_D, is_full=True)
    d = (given["old"].double() - given["rollout"].double()).numpy()
    exact = np.where(np.abs(d) < 1e-3, d**2 / 2 + d**3 / 6 + d**4 / 24, np.expm1(d) - d).sum()
    single = given["old"] - given["rollout"]
    direct = (torch.exp(single) - 1 - single).double().sum().item()
    found = ours(**given)["mismatch_sum_k3"].sum()
    print(f"\nk3 at |d| ~ {SMALL_D:g}, relative error against float64\n\n| what | error |\n|---|---:|")
    print(f"| trmon | {abs(found / exact - 1):.1e} |\n| float32 exp(d) - 1 - d | {abs(direct / exact - 1):.1e} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--extra-of", help=argparse.SUPPRESS)
    parser.add_argument("--full", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.extra_of is None:
        main(arguments.device)
    else:
        _print_extra(arguments.extra_of, device=arguments.device, is_full=arguments.full)
