"""Measures what the client costs a trainer under faults: python benchmarks/bench_client_under_fire.py

The columns `p50` and `p99` are the CPU time that one `log_batch` takes of the calling thread beyond the statistics. The
statistics are all that reads the trainer's arrays, `Session._decide`: checking the arguments, which of them are given,
the columns, divergences of logits, the decision and the token rules. Beyond them is what monitoring costs on any batch:
numbering the chunk, building the report, waking the encoder and making the decision's object. CPU time leaves out the
time in which other threads and processes run, but not what they cost in caches and shared cores.

`exit s` is how long `Monitor.close` keeps the trainer with the default limit of 2 s.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tests.client.faults import hostile_server as hostile
from tests.client.faults.hostile_server import HostileServer
from tests.client.server import Peer
from tests.client.trainer import batch, settings
from tests.fixtures.ports import free_port
from trmon_client.config.settings import Limits
from trmon_client.monitor import Monitor
from trmon_client.session import Session

MEBIBYTE = 2**20
CALLS = 2_000
GAP_SECONDS = 0.001
"""The trainer's pause between two calls."""
TIGHT_CALLS = 100_000


@dataclass
class Stopwatch:
    """Adds up the calling thread's CPU time in some work."""

    ns: int = 0

    def timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return the work, timed."""

        def call(*args: Any, **kwargs: Any) -> Any:
            before = time.thread_time_ns()
            try:
                return work(*args, **kwargs)
            finally:
                self.ns += time.thread_time_ns() - before

        return call


class ShortOfDisk:
    """Cuts every file at 0 bytes while it is open, as a full disk does."""

    def __enter__(self) -> str:
        self._limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, self._limits[1]))
        return f"http://127.0.0.1:{free_port()}"

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._limits)


def services() -> dict[str, AbstractContextManager[Any]]:
    """Return a server, or the URL of none, for each state of the service."""
    return {
        "answers": Peer(),
        "is absent": nullcontext(f"http://127.0.0.1:{free_port()}"),
        "never answers": HostileServer(hostile.never_answer),
        "one byte a second": HostileServer(hostile.one_byte_a_second()),
        "never reads": HostileServer(hostile.never_read),
        "hangs up": HostileServer(hostile.hang_up),
        "answers 500": HostileServer(hostile.status("500 Internal Server Error")),
        "429, Retry-After: 3600": HostileServer(hostile.status("429 Busy", "Retry-After: 3600")),
        "redirects": HostileServer(hostile.status("302 Moved", "Location: http://127.0.0.1:1/")),
        "is a name of no host": nullcontext("http://service.invalid:8642"),
        "is absent, disk full": ShortOfDisk(),
    }


def measure(url: str, stopwatch: Stopwatch, *, n: int, gap_seconds: float) -> tuple[np.ndarray, float, float]:
    """Return the overhead of each call in us, the exit delay in s, and the growth of the memory in MiB."""
    arguments, overhead = batch(), []
    with tempfile.TemporaryDirectory() as folder:
        chosen = replace(settings(Path(folder), url=url), limits=Limits())
        with Monitor(chosen) as monitor:
            for step in range(10):
                monitor.log_batch(step=step, **arguments)
            before_bytes = resident_bytes()
            for step in range(10, n + 10):
                stopwatch.ns, before = 0, time.thread_time_ns()
                monitor.log_batch(step=step, **arguments)
                overhead.append(time.thread_time_ns() - before - stopwatch.ns)
                if gap_seconds:
                    time.sleep(gap_seconds)
            grown = resident_bytes() - before_bytes
            ends_at = time.monotonic()
        exit_seconds = time.monotonic() - ends_at
    return np.array(overhead) / 1e3, exit_seconds, grown / MEBIBYTE


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    stopwatch = Stopwatch()
    Session._decide = stopwatch.timed(Session._decide)  # type: ignore[method-assign]
    print("log_batch of 4 sequences: CPU time of the trainer's thread beyond the statistics, in us; exit in s")
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    print(f"{'the service':<22} {'calls':>8} {'p50':>7} {'p99':>7} {'exit s':>7} {'MiB more':>9}")
    for name, server in services().items():
        show(name, server, stopwatch, n=CALLS, gap_seconds=GAP_SECONDS)
    absent = nullcontext(f"http://127.0.0.1:{free_port()}")
    show("is absent, tight loop", absent, stopwatch, n=TIGHT_CALLS, gap_seconds=0.0)
    show("disk full, tight loop", ShortOfDisk(), stopwatch, n=TIGHT_CALLS, gap_seconds=0.0)
    print(f"load of the machine {os.getloadavg()[0]:.1f}")


def show(name: str, server: AbstractContextManager[Any], stopwatch: Stopwatch, *, n: int, gap_seconds: float) -> None:
    with ExitStack() as stack:
        entered = stack.enter_context(server)
        url = entered if isinstance(entered, str) else entered.url
        overhead, exit_seconds, grown = measure(url, stopwatch, n=n, gap_seconds=gap_seconds)
    p50, p99 = np.quantile(overhead, (0.5, 0.99))
    print(f"{name:<22} {n:8,} {p50:7.1f} {p99:7.1f} {exit_seconds:7.2f} {grown:9.1f}", flush=True)


if __name__ == "__main__":
    main()
