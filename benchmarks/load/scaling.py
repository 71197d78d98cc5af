"""Measures scaling: CPU per report over runs and over stored data, start-up, /metrics; prints a table.

PYTHONPATH=. python -m benchmarks.load.scaling [--runs 10,5000] [--batches 10000,1000000] [--restart 10000]
    [--active 500] [--whatif 250000,1000000] [--slices 20] [--fleet]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.load.connection import Connection
from benchmarks.load.deployments import UNLIMITED, Deployment, DeploymentFactory, data_of, embedded, fleet
from benchmarks.load.filling import PAST, REPORT_SEQUENCES, RUN, fill_batches, fill_runs, fill_sequences
from benchmarks.load.processes import cpu_seconds, load_average, resident_bytes, unwind_on_sigterm
from benchmarks.load.scenario import drain
from benchmarks.load.sending import Pace, Senders
from benchmarks.load.workload import Workload
from tests.fixtures.service import ServiceProcess
from trmon_client.api.service import WHAT_IF_SECONDS

MIB = 1 << 20
SLICE_REPORTS = 500
NEW_STEPS = 2
"""After this many steps a run is no longer new."""
CONNECTIONS = 4
ASKED = 9
"""The number of reads behind the median time of a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A number of runs that report in turn to a deployment, and a number of batches that are already stored."""

    of: str
    n_runs: int
    n_ranks: int = 1
    n_stored: int = 0
    deploy: DeploymentFactory = embedded


@dataclass(slots=True)
class Loaded:
    """A service that receives its load in slices: its next runs, then their next steps."""

    load: Load
    deployment: Deployment
    next_run: int = 0
    next_step: int = 0

    def cost_ms(self, n_reports: int) -> float:
        """Send more reports and return the CPU time of each until it was closed, in milliseconds."""
        n_runs, n_ranks = min(n_reports, self.load.n_runs), self.load.n_ranks
        steps = range(self.next_step, self.next_step + max(n_reports // (n_runs * n_ranks), 1))
        workload = Workload(first_run=self.next_run, n_runs=n_runs, n_ranks=n_ranks)
        before = cpu_seconds(self.deployment.pids())
        _send(self.deployment.url, workload, steps)
        spent = cpu_seconds(self.deployment.pids()) - before
        self.next_run += n_runs
        if self.next_run >= self.load.n_runs:
            self.next_run, self.next_step = 0, steps.stop
        return spent / (len(steps) * n_runs * n_ranks) * 1000


def main() -> None:
    unwind_on_sigterm()
    given = _arguments()
    title = f"Scaling, {given.slices} slices of {SLICE_REPORTS} reports"
    table = Table("what", "of", "CPU ms/report", "times first", "MiB", "ms", title=title)
    console = Console(width=110)
    loads = [
        [Load(of=f"{n_runs:,} runs", n_runs=n_runs) for n_runs in given.runs],
        [Load(of=f"{n:,} stored batches", n_runs=10, n_stored=n) for n in given.batches],
    ]
    if given.fleet:
        beside = Load(of="embedded", n_runs=20, n_ranks=8)
        loads.append([beside, replace(beside, of="fleet", deploy=fleet)])
    for compared in filter(None, loads):
        _measure_loads(table, compared, n_slices=given.slices)
    others = ((_measure_start, given.restart), (_measure_metrics, given.active), (_measure_whatif, given.whatif))
    for measure, numbers in others:
        for n in numbers:
            with tempfile.TemporaryDirectory() as folder:
                measure(table, Path(folder), n)
    console.print(table)
    console.print(f"load average after it: {load_average()}")


def _arguments() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",") if part]

    parser = argparse.ArgumentParser(prog="benchmarks.load.scaling", description=__doc__)
    parser.add_argument("--runs", type=numbers, default=[10, 5000], help="number of runs that report in turn")
    parser.add_argument(
        "--batches", type=numbers, default=[10_000, 1_000_000], help="number of batches stored beforehand"
    )
    parser.add_argument("--restart", type=numbers, default=[10_000], help="number of runs in the database at start-up")
    parser.add_argument("--active", type=numbers, default=[500], help="number of runs on /metrics")
    parser.add_argument(
        "--whatif", type=numbers, default=[250_000, 1_000_000], help="number of sequences for a what-if query"
    )
    parser.add_argument("--fleet", action="store_true", help="compare a fleet with an embedded service")
    parser.add_argument("--slices", type=int, default=20, help="number of slices of load per service")
    return parser.parse_args()


def _measure_loads(table: Table, loads: Sequence[Load], *, n_slices: int) -> None:
    """Send slices to the services in turn: the machine's speed changes from minute to minute."""
    with ExitStack() as stack:
        loaded = [stack.enter_context(_loaded(load)) for load in loads]
        slices = [[one.cost_ms(SLICE_REPORTS) for one in loaded] for _ in range(n_slices)]
        for i, one in enumerate(loaded):
            cost_ms = statistics.median(costs[i] for costs in slices)
            times = statistics.median(costs[i] / costs[0] for costs in slices)
            resident = resident_bytes(one.deployment.pids()) / MIB
            table.add_row("load", one.load.of, f"{cost_ms:.2f}", f"{times:.2f}", f"{resident:.0f}", "")


@contextmanager
def _loaded(load: Load) -> Iterator[Loaded]:
    """Let each run report before the measurement, so that the cost of new runs is excluded."""
    with tempfile.TemporaryDirectory() as folder:
        if load.n_stored:
            fill_batches(data_of(Path(folder)), load.n_stored)
        with load.deploy(Path(folder)) as deployment:
            _send(deployment.url, Workload(n_runs=load.n_runs, n_ranks=load.n_ranks), range(NEW_STEPS))
            yield Loaded(load, deployment, next_step=NEW_STEPS)


def _send(url: str, workload: Workload, steps: Sequence[int]) -> None:
    """Send these steps of every run, and wait until they are closed."""
    pace = Pace(seconds=3600.0)
    senders = Senders(lambda: url, workload, n_connections=max(CONNECTIONS, workload.n_ranks), pace=pace, steps=steps)
    senders.start()
    sent, _ = senders.wait()
    assert not sent.failures, sent.failures[:3]
    drain(url, sent, workload=workload)


def _measure_start(table: Table, folder: Path, n_runs: int) -> None:
    """Measure the time from the command to the first successful /readyz."""
    fill_runs(folder, n_runs)
    began = time.perf_counter()
    service = ServiceProcess(folder, **UNLIMITED)
    try:
        _ask(service.url, "/readyz", times=1)
        seconds = time.perf_counter() - began
        table.add_row("start to ready", f"{n_runs:,} runs", "", "", "", f"{seconds * 1000:,.0f}")
    finally:
        service.stop()


def _measure_metrics(table: Table, folder: Path, n_runs: int) -> None:
    """Measure /metrics; only the text of runs that reported since the last scrape is rebuilt."""
    service = ServiceProcess(folder, **UNLIMITED)
    try:
        workload = Workload(n_runs=n_runs, n_ranks=1)
        _send(service.url, workload, range(2))
        new = []
        for step in range(2, 2 + ASKED):
            _send(service.url, workload, range(step, step + 1))
            new.append(_ask(service.url, "/metrics", times=1))
        again = _ask(service.url, "/metrics", times=ASKED)
        table.add_row("/metrics, all runs new", f"{n_runs:,} active runs", "", "", "", f"{statistics.median(new):,.0f}")
        table.add_row("/metrics again", f"{n_runs:,} active runs", "", "", "", f"{again:,.0f}")
    finally:
        service.stop()


def _measure_whatif(table: Table, folder: Path, n_sequences: int) -> None:
    """Measure the time and the memory of a what-if query over every stored sequence of a run."""
    fill_sequences(folder, n_sequences)
    # By default, a service keeps the newest 2 GiB of a run.
    service = ServiceProcess(folder, retention_run_bytes=str(1 << 40), **UNLIMITED)
    try:
        connection = Connection(service.url, timeout_seconds=WHAT_IF_SECONDS)
        before = resident_bytes([service.process.pid])
        question = json.dumps({"policy": "geo_mask", "max_steps": n_sequences // REPORT_SEQUENCES}).encode()
        answer = connection.post(f"/api/v1/runs/{PAST}/{RUN}/whatif", question, content_type="application/json")
        assert answer.status == 200, answer
        n_seen = json.loads(answer.body)["total"]["n_sequences"]
        assert n_seen == n_sequences // REPORT_SEQUENCES * REPORT_SEQUENCES, n_seen
        grown = (resident_bytes([service.process.pid]) - before) / MIB
        table.add_row("what-if", f"{n_sequences:,} sequences", "", "", f"+{grown:.0f}", f"{answer.seconds * 1000:,.0f}")
        connection.close()
    finally:
        service.stop()


def _ask(url: str, path: str, *, times: int) -> float:
    """Return the median time of a page, in milliseconds."""
    connection = Connection(url)
    answers = [connection.get(path) for _ in range(times)]
    connection.close()
    assert all(answer.status == 200 for answer in answers), [answer.status for answer in answers]
    return 1000 * statistics.median(answer.seconds for answer in answers)


if __name__ == "__main__":
    main()
