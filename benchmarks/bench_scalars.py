"""Measures what logging scalars costs the trainer's thread, by the state of the service: bench_scalars.py"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import trmon_client as trmon
from tests.client.server import Answer, Peer, Request
from tests.fixtures.ports import free_port
from trmon_client.integrations.framework_runs import report_numbers

SIZES = (10, 100)
CALLS, FIRST = 300, 20
GAP_SECONDS = 0.01
SLOW_SECONDS = 3.0


class SlowServer(Peer):
    """A server that takes 3 s for each request."""

    def answer(self, request: Request) -> Answer:
        time.sleep(SLOW_SECONDS)
        return super().answer(request)


@contextmanager
def services() -> Iterator[dict[str, str]]:
    """Run a server for each state, and give their URLs."""
    with Peer() as up, SlowServer() as slow, Peer(otherwise=Answer(500)) as failing:
        down = f"http://127.0.0.1:{free_port()}"
        yield {"up": up.url, "down": down, "3 s a request": slow.url, "answers 500": failing.url}


def call_seconds(url: str, n_numbers: int) -> float:
    """Return the median CPU time of the calling thread in a call."""
    numbers = {f"metric/{i}": float(i) for i in range(n_numbers)}
    with tempfile.TemporaryDirectory() as folder:
        monitor = trmon.init(project="bench", run="scalars", url=url, spool_dir=Path(folder), rank=0, world_size=1)
        found = []
        for step in range(CALLS):
            began = time.thread_time()
            report_numbers(monitor, step, lambda: numbers)
            found.append(time.thread_time() - began)
            time.sleep(GAP_SECONDS)
        monitor.close()
    return statistics.median(found[FIRST:])


def main() -> None:
    print(f"load of the machine {os.getloadavg()[0]:.0f}; medians of {CALLS - FIRST} calls\n")
    print(f"| service | {' | '.join(f'{size} numbers, CPU us' for size in SIZES)} |")
    print("|---|---:|---:|")
    with services() as urls:
        for name, url in urls.items():
            print(f"| {name} | {' | '.join(f'{1e6 * call_seconds(url, size):.0f}' for size in SIZES)} |")


if __name__ == "__main__":
    main()
