"""What grows and what does not: CPU a report over runs and over what is stored, start, /metrics; prints a table.

PYTHONPATH=. python -m tests.load.scaling [--runs 10,5000] [--batches 10000,1000000] [--restart 10000] [--active 500]
    [--memory 10000,100000,1000000]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.fixtures.service import ServiceProcess
from tests.load.connection import Connection
from tests.load.ending import unwind_when_told
from tests.load.filling import PAST, REPORT_SEQUENCES, RUN, fill_batches, fill_runs, fill_sequences
from tests.load.gears import UNLIMITED
from tests.load.processes import cpu_seconds, resident_bytes
from tests.load.scenario import drain
from tests.load.sending import Pace, Senders
from tests.load.workload import Workload

MIB = 1 << 20
CONNECTIONS = 4
MEMORY_SEQUENCES = 4
ASKED = 9
"""How often a page is read for the median of its time."""


def main() -> None:
    """Measure what was asked for, and print it."""
    unwind_when_told()
    given = _arguments()
    table = Table("what", "of", "CPU ms/report", "MiB", "ms", title=f"Scaling, {given.reports:,} reports each")
    console = Console(width=110)
    for n_runs in given.runs:
        with tempfile.TemporaryDirectory() as folder:
            _measure_load(table, f"{n_runs:,} runs", folder=Path(folder), n_runs=n_runs, n_reports=given.reports)
    for n_batches in given.batches:
        with tempfile.TemporaryDirectory() as folder:
            fill_batches(Path(folder), n_batches)
            _measure_load(
                table, f"{n_batches:,} stored batches", folder=Path(folder), n_runs=10, n_reports=given.reports
            )
    for n_runs in given.restart:
        with tempfile.TemporaryDirectory() as folder:
            _measure_start(table, folder=Path(folder), n_runs=n_runs)
    for n_runs in given.active:
        with tempfile.TemporaryDirectory() as folder:
            _measure_metrics(table, folder=Path(folder), n_runs=n_runs)
    for n_sequences in given.whatif:
        with tempfile.TemporaryDirectory() as folder:
            _measure_whatif(table, folder=Path(folder), n_sequences=n_sequences)
    if given.memory:
        with tempfile.TemporaryDirectory() as folder:
            _measure_memory(table, folder=Path(folder), counts=given.memory)
    console.print(table)
    console.print(f"load average after it: {', '.join(f'{load:.1f}' for load in os.getloadavg())}")


def _arguments() -> argparse.Namespace:
    def numbers(text: str) -> list[int]:
        return [int(part) for part in text.split(",") if part]

    parser = argparse.ArgumentParser(prog="tests.load.scaling", description=__doc__)
    parser.add_argument("--runs", type=numbers, default=[10, 5000], help="how many runs report in turn")
    parser.add_argument(
        "--batches", type=numbers, default=[10_000, 1_000_000], help="how many batches are stored before"
    )
    parser.add_argument("--restart", type=numbers, default=[10_000], help="over how many runs the service starts")
    parser.add_argument("--active", type=numbers, default=[500], help="how many runs /metrics shows")
    parser.add_argument("--whatif", type=numbers, default=[250_000, 1_000_000], help="over how many sequences to ask")
    parser.add_argument("--memory", type=numbers, default=[], help="after how many small reports to look at memory")
    parser.add_argument("--reports", type=int, default=5000, help="how many reports are measured")
    return parser.parse_args()


def _measure_load(table: Table, of: str, *, folder: Path, n_runs: int, n_reports: int) -> None:
    """Each run reports once before it is measured, so that what a new run costs is left out."""
    service = ServiceProcess(folder, **UNLIMITED)
    try:
        workload = Workload(n_runs=n_runs, n_ranks=1)
        _send(service, workload, range(1))
        steps = range(1, 1 + max(n_reports // n_runs, 1))
        before = cpu_seconds([service.process.pid])
        _send(service, workload, steps)
        spent = cpu_seconds([service.process.pid]) - before
        resident = resident_bytes([service.process.pid]) / MIB
        table.add_row("load", of, f"{spent / len(steps) / n_runs * 1000:.2f}", f"{resident:.0f}", "")
    finally:
        service.stop()


def _send(service: ServiceProcess, workload: Workload, steps: Sequence[int]) -> None:
    """Send these steps of every run, and wait until they are closed."""
    pace = Pace(seconds=3600.0)
    senders = Senders(lambda: service.url, workload, n_connections=CONNECTIONS, pace=pace, steps=steps)
    senders.start()
    sent, _ = senders.wait()
    assert not sent.failures, sent.failures[:3]
    drain(service.url, sent, workload=workload)


def _measure_start(table: Table, *, folder: Path, n_runs: int) -> None:
    """From the command to the first /readyz that says so."""
    fill_runs(folder, n_runs)
    began = time.perf_counter()
    service = ServiceProcess(folder, **UNLIMITED)
    try:
        _ask(service.url, "/readyz", times=1)
        seconds = time.perf_counter() - began
        table.add_row("start to ready", f"{n_runs:,} runs", "", "", f"{seconds * 1000:,.0f}")
    finally:
        service.stop()


def _measure_metrics(table: Table, *, folder: Path, n_runs: int) -> None:
    """Twice: the text of runs that reported since the last scrape is made anew, that of the others is not."""
    service = ServiceProcess(folder, **UNLIMITED)
    try:
        workload = Workload(n_runs=n_runs, n_ranks=1)
        _send(service, workload, range(2))
        first = _ask(service.url, "/metrics", times=1)
        again = _ask(service.url, "/metrics", times=ASKED)
        table.add_row("/metrics, all runs new", f"{n_runs:,} active runs", "", "", f"{first:,.0f}")
        table.add_row("/metrics again", f"{n_runs:,} active runs", "", "", f"{again:,.0f}")
    finally:
        service.stop()


def _measure_memory(table: Table, *, folder: Path, counts: Sequence[int]) -> None:
    """Resident memory of the service and its worker after so many reports of few sequences in all, ascending."""
    service = ServiceProcess(folder, **UNLIMITED)
    try:
        workload = Workload(n_runs=4, n_ranks=4, n_sequences=MEMORY_SEQUENCES)
        done = 0
        for count in counts:
            steps = range(done, count // (workload.n_runs * workload.n_ranks))
            before = cpu_seconds([service.process.pid])
            _send(service, workload, steps)
            spent = cpu_seconds([service.process.pid]) - before
            done = steps.stop
            resident = resident_bytes([service.process.pid]) / MIB
            n_reports = len(steps) * workload.n_runs * workload.n_ranks
            table.add_row("memory", f"{count:,} reports", f"{spent / n_reports * 1000:.2f}", f"{resident:.0f}", "")
    finally:
        service.stop()


def _measure_whatif(table: Table, *, folder: Path, n_sequences: int) -> None:
    """How long another policy takes over every stored sequence of a run, and what that adds to the memory."""
    fill_sequences(folder, n_sequences)
    service = ServiceProcess(folder, **UNLIMITED)
    try:
        connection = Connection(service.url)
        before = resident_bytes([service.process.pid])
        question = json.dumps({"policy": "geo_mask", "max_steps": n_sequences // REPORT_SEQUENCES}).encode()
        answer = connection.post(f"/api/v1/runs/{PAST}/{RUN}/whatif", question, content_type="application/json")
        assert answer.status == 200, answer
        n_seen = json.loads(answer.body)["total"]["n_sequences"]
        assert n_seen == n_sequences // REPORT_SEQUENCES * REPORT_SEQUENCES, n_seen
        grown = (resident_bytes([service.process.pid]) - before) / MIB
        table.add_row("what-if", f"{n_sequences:,} sequences", "", f"+{grown:.0f}", f"{answer.seconds * 1000:,.0f}")
        connection.close()
    finally:
        service.stop()


def _ask(url: str, path: str, *, times: int) -> float:
    """Return the median time of a page, in milliseconds."""
    connection = Connection(url)
    answers = [connection.get(path) for _ in range(times)]
    connection.close()
    assert all(answer.status == 200 for answer in answers), [answer.status for answer in answers]
    return 1000 * _median(answer.seconds for answer in answers)


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


if __name__ == "__main__":
    main()
