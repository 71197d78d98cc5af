"""Heartbeats and scrapes beside the reports, each at a steady rate on a connection of its own."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from benchmarks.capacity.load_cells import LoadCell
from benchmarks.load.connection import Connection
from benchmarks.load.sending import OK
from benchmarks.load.workload import PROJECT, Workload
from trmon_client.core import wire


@contextmanager
def side_load(url: str, cell: LoadCell) -> Iterator[list[int]]:
    """Send a cell's heartbeats and scrapes until the block ends; yield their numbers, which grow meanwhile."""
    counts, stopping = [0, 0], threading.Event()
    senders = ((cell.heartbeats, _heartbeats(cell.workload)), (cell.scrapes, _scrape))
    threads = [
        threading.Thread(
            target=_repeat, args=(url, send), kwargs={"per_second": rate, "at": i, "to": counts, "until": stopping}
        )
        for i, (rate, send) in enumerate(senders)
        if rate
    ]
    for thread in threads:
        thread.start()
    try:
        yield counts
    finally:
        stopping.set()
        for thread in threads:
            thread.join()


def _repeat(
    url: str,
    send: Callable[[Connection], int],
    *,
    per_second: float,
    at: int,
    to: list[int],
    until: threading.Event,
) -> None:
    connection, began = Connection(url), time.perf_counter()
    while not until.wait(max(began + to[at] / per_second - time.perf_counter(), 0.0)):
        status = send(connection)
        assert status == OK, status
        to[at] += 1
    connection.close()


def _heartbeats(workload: Workload) -> Callable[[Connection], int]:
    places = itertools.cycle([(run, rank) for run in range(workload.n_runs) for rank in range(workload.n_ranks)])

    def send(connection: Connection) -> int:
        run, rank = next(places)
        path = f"/api/v1/runs/{PROJECT}/{workload.run(run)}/reports"
        return connection.post(path, workload.heartbeat(run, rank=rank), content_type=wire.MSGPACK).status

    return send


def _scrape(connection: Connection) -> int:
    return connection.get("/metrics").status
