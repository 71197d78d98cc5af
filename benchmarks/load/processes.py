"""CPU time, memory, open files and threads of processes, as the kernel counts them, and how a measurement ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def unwind_on_sigterm() -> None:
    """Make SIGTERM unwind every `with` block, as Ctrl-C does: it also stops the servers that were started."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def load_average() -> str:
    """Return the machine's load averages of 1, 5 and 15 minutes."""
    return ", ".join(f"{load:.1f}" for load in os.getloadavg())


def family(pids: Iterable[int]) -> set[int]:
    """Return these processes and all their descendants."""
    found, waiting = set(), list(pids)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += _children(pid)
    return found


def cpu_seconds(pids: Iterable[int]) -> float:
    """Return the CPU time of these processes and their descendants, including those that ended and were awaited."""
    return sum(sum(map(int, _stat(pid)[11:15])) for pid in family(pids)) / TICKS_PER_SECOND


def waited_seconds(pids: Iterable[int]) -> float:
    """Return how long the main threads of these processes and their descendants were ready but had no core."""
    return sum(_waited_seconds(pid) for pid in family(pids))


def resident_bytes(pids: Iterable[int]) -> int:
    """Return the resident memory of these processes and their descendants; shared pages count for each."""
    return sum(int(_stat(pid)[21]) for pid in family(pids)) * PAGE_BYTES


def n_handles(pids: Iterable[int]) -> int:
    """Return the number of open files and sockets of these processes and their descendants."""
    return sum(len(list(Path(f"/proc/{pid}/fd").glob("*"))) for pid in family(pids))


def n_threads(pids: Iterable[int]) -> int:
    """Return the number of threads of these processes and their descendants."""
    return sum(len(list(Path(f"/proc/{pid}/task").glob("*"))) for pid in family(pids))


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name; zeros for a process that has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ["0"] * 50


def _waited_seconds(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue
    return found
