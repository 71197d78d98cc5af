"""Measures a call on the CPU or on a CUDA device: time, and memory beyond its inputs."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

MEBIBYTE = 2**20
COPIED_BYTES = 2**31
CALLS = 10


def milliseconds(call: Callable[[], Any], *, device: str) -> tuple[float, float]:
    """Return the wall and CPU time of a call, including the end of its work on a device."""
    _synchronize(device)
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    _synchronize(device)
    return 1e3 * (time.perf_counter() - wall), 1e3 * (time.process_time() - cpu)


def extra_mebibytes(call: Callable[[], Any], *, device: str) -> float:
    """Return by how much a call raises the peak memory of the device or of this process."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        call()
        return (torch.cuda.max_memory_allocated() - before) / MEBIBYTE
    # Reset the peak so that it excludes the creation of the arguments.
    Path("/proc/self/clear_refs").write_text("5")
    before = _peak_bytes()
    call()
    return (_peak_bytes() - before) / MEBIBYTE


def read_bytes_per_second() -> float:
    """Return the copy bandwidth of the CUDA device, counting reads and writes, as a reference."""
    source = torch.empty(COPIED_BYTES, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def copy() -> None:
        for _ in range(CALLS):
            target.copy_(source)

    copy()
    return 2 * CALLS * COPIED_BYTES / (milliseconds(copy, device="cuda")[0] / 1e3)


def device_milliseconds(call: Callable[[], Any]) -> tuple[float, int]:
    """Return for how long the kernels of a call keep the CUDA device busy, and how many there are."""
    torch.cuda.synchronize()
    # Both activities: without the host's, calls that copy to the host are missing.
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    on_device = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return sum(event.device_time for event in on_device) / 1e3, len(on_device)


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
