"""Measures the delay from a completed batch to its event on PostgreSQL, with Redis and without."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.fixtures.fleet import WorkerProcess
from tests.fixtures.postgres import Postgres
from tests.fixtures.redis import Redis
from tests.fixtures.service import ThreadedService
from tests.fixtures.trainer import MATH, send_step, train
from tests.fixtures.waiting import eventually

STEPS = range(1, 31)
PAUSE_SECONDS = 0.37
"""Does not divide a second, so that steps fall at all times between two polls."""


class EventListener:
    """When the event of each step's batch arrived, on the monotonic clock."""

    def __init__(self, url: str) -> None:
        self.at: dict[int, float] = {}
        self.connected = threading.Event()
        threading.Thread(target=self._follow, args=(url,), daemon=True).start()

    def _follow(self, url: str) -> None:
        with httpx.Client(base_url=url, timeout=None) as client, client.stream("GET", "/api/v1/events") as stream:
            kind = ""
            for line in stream.iter_lines():
                self.connected.set()
                name, _, value = line.partition(": ")
                if name == "event":
                    kind = value
                elif name == "data" and kind == "batch":
                    self.at[json.loads(value)["step"]] = time.monotonic()


def waited(database_url: str, folder: Path, **settings: Any) -> list[float]:
    """Return the milliseconds from the report that completes a step to its event."""
    with ExitStack() as stack:
        service = ThreadedService(folder, database_url=database_url, **settings)
        stack.callback(service.stop)
        stack.enter_context(WorkerProcess(database_url, log=folder / "worker.log", **settings))
        client = stack.enter_context(service.client())
        listener, complete = EventListener(service.url), {}
        listener.connected.wait()
        train(client, steps=range(1), end=False)
        for step in STEPS:
            send_step(client, MATH, step=step)
            complete[step - 1] = time.monotonic()
            time.sleep(PAUSE_SECONDS)
        eventually(lambda: listener.at.keys() >= complete.keys())
        return [1000 * (listener.at[step] - at) for step, at in complete.items() if step]


def main() -> None:
    print(f"{'':14}{'median ms':>10}{'worst ms':>10}")
    with Postgres() as postgres, Redis() as redis, tempfile.TemporaryDirectory() as name:
        for what, settings in {"with Redis": {"redis_url": redis.url}, "without": {}}.items():
            folder = Path(name) / what.replace(" ", "-")
            folder.mkdir()
            found = waited(postgres.database(), folder, **settings)
            print(f"{what:14}{statistics.median(found):10.0f}{max(found):10.0f}")
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
