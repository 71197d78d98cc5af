"""Compares trmon with MLflow and Prometheus' pushgateway in one run: acknowledged requests on four connections.

PYTHONPATH=. python -m benchmarks.load.peers --mlflow .venv-load-peers/bin/mlflow
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.load.connection import Connection
from benchmarks.load.deployments import UNLIMITED
from benchmarks.load.processes import cpu_seconds, load_average, unwind_on_sigterm
from benchmarks.load.workload import PROJECT, Workload
from tests.fixtures.ports import free_port
from tests.fixtures.service import ServiceProcess
from trmon_client.core import wire

CONNECTIONS = 4
METRICS = 60
START_SECONDS = 120.0
WARM_UP_SECONDS = 4.0
STEPS_A_ROUND = 1_000_000
"""Each round starts its counts at a multiple of this, so that no two rounds send the same data."""


Request = tuple[str, str, bytes, str]
"""Method, path, body and content type."""


@dataclass(slots=True)
class Posted:
    """The posted requests: each response time, the total time, and the service's CPU time."""

    answers_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def per_second(self) -> float:
        return len(self.answers_seconds) / self.seconds

    @property
    def cpu_ms(self) -> float:
        """The service's CPU time per request, in milliseconds."""
        return self.cpu_seconds / len(self.answers_seconds) * 1000

    def quantile_ms(self, share: float) -> float:
        """Return the response time that this share of the requests did not exceed, in milliseconds."""
        return float(np.quantile(self.answers_seconds, share)) * 1000


class Peer(ABC):
    """A running service and its requests."""

    name: str
    sent: str

    def __init__(self, url: str, pid: int) -> None:
        self.url = url
        self.pid = pid

    @abstractmethod
    def request(self, number: int, count: int) -> Request:
        """Return the request of a connection for a count."""


class Trmon(Peer):
    """Reports of 64 sequences; a connection is a rank of one run, or a separate run."""

    sent = "64 sequences, 96 columns; durable"

    def __init__(self, url: str, pid: int, *, workload: Workload) -> None:
        super().__init__(url, pid)
        self._workload = workload
        self.name = f"trmon, {workload.n_runs} run(s) of {workload.n_ranks} rank(s)"

    def request(self, number: int, count: int) -> Request:
        run, rank = (number, 0) if self._workload.n_runs > 1 else (0, number)
        body = self._workload.report(run, step=count, rank=rank)
        return "POST", f"/api/v1/runs/{PROJECT}/{self._workload.run(run)}/reports", body, wire.MSGPACK


class Mlflow(Peer):
    """`log-batch`, with one run per connection."""

    name = "MLflow log-batch, SQLite"
    sent = f"{METRICS} metrics; committed"

    def __init__(self, url: str, pid: int) -> None:
        super().__init__(url, pid)
        experiment = self._asked("experiments/create", {"name": "load"})["experiment_id"]
        made = [self._asked("runs/create", {"experiment_id": experiment}) for _ in range(CONNECTIONS)]
        self._runs = [one["run"]["info"]["run_id"] for one in made]

    def request(self, number: int, count: int) -> Request:
        now_ms = int(time.time() * 1000)
        metrics = [{"key": f"m{i}", "value": i + count / 7, "timestamp": now_ms, "step": count} for i in range(METRICS)]
        body = json.dumps({"run_id": self._runs[number], "metrics": metrics}).encode()
        return "POST", "/api/2.0/mlflow/runs/log-batch", body, "application/json"

    def _asked(self, path: str, document: dict[str, object]) -> dict[str, dict[str, dict[str, str]]]:
        """Return the response to a POST; a starting worker may break requests on a busy machine, so retry."""
        deadline, body = time.monotonic() + START_SECONDS, json.dumps(document).encode()
        connection = Connection(self.url)
        while (answer := connection.post(f"/api/2.0/mlflow/{path}", body, content_type="application/json")).status == 0:
            assert time.monotonic() < deadline, answer
        connection.close()
        assert answer.status == 200, answer
        found: dict[str, dict[str, dict[str, str]]] = json.loads(answer.body)
        return found


class Pushgateway(Peer):
    """Gauges of one group per connection."""

    name = "pushgateway"
    sent = f"{METRICS} gauges; in memory, the newest only"

    def request(self, number: int, count: int) -> Request:
        body = "".join(f"# TYPE m{i} gauge\nm{i} {i + count / 7}\n" for i in range(METRICS)).encode()
        return "PUT", f"/metrics/job/load/rank/r{number}", body, "text/plain; version=0.0.4"


def main() -> None:
    """Measure each service in turn, several times, and print the medians."""
    unwind_on_sigterm()
    parser = argparse.ArgumentParser(prog="benchmarks.load.peers", description=__doc__)
    parser.add_argument("--mlflow", required=True, help="MLflow's command")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        peers = _started(stack, folder, mlflow=given.mlflow)
        for peer in peers:
            _measure(peer, seconds=WARM_UP_SECONDS, first=0)
        found: dict[str, list[Posted]] = {peer.name: [] for peer in peers}
        for number in range(given.rounds):
            for peer in peers:
                found[peer.name].append(_measure(peer, seconds=given.seconds, first=(number + 1) * STEPS_A_ROUND))
    console = Console(width=140)
    console.print(_table(peers, found))
    console.print(f"load average after it: {load_average()}")


def _started(stack: ExitStack, folder: Path, *, mlflow: str) -> list[Peer]:
    found: list[Peer] = []
    for workload in (Workload(n_ranks=CONNECTIONS), Workload(n_runs=CONNECTIONS, n_ranks=1)):
        service = ServiceProcess(folder / f"trmon-{workload.n_runs}", **UNLIMITED)
        stack.callback(service.stop)
        found.append(Trmon(service.url, service.process.pid, workload=workload))
    store = f"sqlite:///{folder}/mlflow.db"
    command = [mlflow, "server", "--backend-store-uri", store, "--host", "127.0.0.1", "--port"]
    found.append(Mlflow(*stack.enter_context(_running(command, log=folder / "mlflow.log", ready="/health"))))
    command = ["prometheus-pushgateway", "--web.listen-address"]
    running = _running(command, log=folder / "pushgateway.log", ready="/-/ready")
    return [*found, Pushgateway(*stack.enter_context(running))]


@contextmanager
def _running(command: list[str], *, log: Path, ready: str) -> Iterator[tuple[str, int]]:
    """Start a server on a free port, its last argument, and stop it and its children at the end."""
    port = free_port()
    address = f"127.0.0.1:{port}" if command[-1].endswith("address") else str(port)
    with (
        log.open("w") as out,
        subprocess.Popen(
            [*command, address], stdout=out, stderr=out, env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true"}
        ) as process,
    ):
        try:
            url = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + START_SECONDS
            while Connection(url).get(ready).status != 200:
                assert process.poll() is None, log.read_text()[-2000:]
                assert time.monotonic() < deadline, log.read_text()[-2000:]
                time.sleep(0.2)
            yield url, process.pid
        finally:
            process.terminate()


def _measure(peer: Peer, *, seconds: float, first: int) -> Posted:
    """Post over several connections for a time, counting from `first`; requests on broken connections do not count.

    Errors: AssertionError for any response other than 200.
    """
    posted, failures = Posted(), []

    def run(number: int) -> None:
        connection, count = Connection(peer.url), first
        while time.perf_counter() - began < seconds and not failures:
            method, path, body, content_type = peer.request(number, count)
            answer = connection.post(path, body, content_type=content_type, method=method)
            if answer.status == 200:
                posted.answers_seconds.append(answer.seconds)
            elif answer.status:
                failures.append(f"{path}: {answer.status} {answer.body[:200]!r}")
            count += 1
        connection.close()

    began, cpu = time.perf_counter(), cpu_seconds([peer.pid])
    threads = [threading.Thread(target=run, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    posted.seconds, posted.cpu_seconds = time.perf_counter() - began, cpu_seconds([peer.pid]) - cpu
    return posted


def _table(peers: list[Peer], found: dict[str, list[Posted]]) -> Table:
    table = Table("service", "a request", "requests/s", "p50 ms", "p99 ms", "CPU ms each", "times MLflow")
    base = statistics.median(posted.per_second for posted in found[Mlflow.name])
    for peer in peers:
        posted = found[peer.name]
        rate = statistics.median(one.per_second for one in posted)
        table.add_row(
            peer.name,
            peer.sent,
            f"{rate:,.0f}",
            f"{statistics.median(one.quantile_ms(0.5) for one in posted):.1f}",
            f"{statistics.median(one.quantile_ms(0.99) for one in posted):.1f}",
            f"{statistics.median(one.cpu_ms for one in posted):.2f}",
            f"{rate / base:.1f}",
        )
    return table


if __name__ == "__main__":
    main()
