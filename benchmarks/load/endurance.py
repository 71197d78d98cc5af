"""Sends many small reports, and watches that the service stays as it is."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from benchmarks.load.deployments import embedded
from benchmarks.load.processes import family, load_average, n_handles, n_threads, resident_bytes
from benchmarks.load.sending import Pace, Senders, Sent
from benchmarks.load.verification import verify
from benchmarks.load.workload import Workload

WORKLOAD = Workload(n_runs=4, n_ranks=4, n_sequences=4)
CONNECTIONS = 4
N_SAMPLES = 100
MIB = 1 << 20
N_ROWS = 10
POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSample:
    """The service and its runner after a number of reports, and the acknowledgements since the sample before.

    `at` is by `time.perf_counter`.
    """

    at: float
    n_reports: int
    memory_mib: float
    n_handles: int
    n_threads: int
    p50_ms: float = float("nan")
    p99_ms: float = float("nan")
    per_second: float = float("nan")


def endure(console: Console, *, n_reports: int, pace: Pace, plot: Path | None) -> None:
    """Send the reports, print a table and write a plot. Errors: AssertionError if a report is lost or doubled."""
    with tempfile.TemporaryDirectory() as folder:
        samples, sent = watched(Path(folder), n_reports=n_reports, pace=pace)
    table = Table("reports", "memory MiB", "handles", "threads", "ack p50 ms", "p99 ms", "reports/s", box=MARKDOWN)
    for sample in samples[:: max(len(samples) // N_ROWS, 1)]:
        table.add_row(
            f"{sample.n_reports:,}",
            f"{sample.memory_mib:.0f}",
            *(str(sample.n_handles), str(sample.n_threads)),
            *(f"{sample.p50_ms:.1f}", f"{sample.p99_ms:.1f}", f"{sample.per_second:,.0f}"),
        )
    console.print(table)
    console.print(
        f"{len(sent.acknowledged):,} reports acknowledged in {samples[-1].at - samples[0].at:,.0f} s, lost 0, doubled "
        f"0; load average {load_average()}"
    )
    if plot is not None:
        write_plot(samples, plot)


def watched(folder: Path, *, n_reports: int, pace: Pace) -> tuple[list[ServiceSample], Sent]:
    """Send the reports to a new service, and return a sample after each hundredth of them, and what was sent."""
    steps = range(n_reports // (WORKLOAD.n_runs * WORKLOAD.n_ranks))
    with embedded(folder) as deployment:
        senders = Senders(lambda: deployment.url, WORKLOAD, n_connections=CONNECTIONS, pace=pace, steps=steps)
        senders.start()
        samples = []
        try:
            while senders.is_sending:
                if senders.acknowledged >= len(samples) * n_reports / N_SAMPLES:
                    samples.append(_sample(deployment.pids(), n_reports=senders.acknowledged))
                time.sleep(POLL_SECONDS)
        except BaseException:
            senders.abandon()
            raise
        sent, _ = senders.wait()
        samples.append(_sample(deployment.pids(), n_reports=senders.acknowledged))
        assert not sent.failures, sent.failures[:3]
        verdict = verify(deployment.url, WORKLOAD, sent.acknowledged)
    assert not verdict.lost + verdict.duplicated, verdict
    return _with_latencies(samples, sent), sent


def write_plot(samples: Sequence[ServiceSample], path: Path) -> None:
    """Draw memory, handles, threads and acknowledgement times over the number of reports."""
    # Imported here: faults are caused without it.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots(2, 2, sharex=True)
    n_reports = [sample.n_reports for sample in samples]
    panels = (
        ("resident memory, MiB", {"service and runner": [sample.memory_mib for sample in samples]}),
        (
            "open files and threads",
            {
                "files": [sample.n_handles for sample in samples],
                "threads": [sample.n_threads for sample in samples],
            },
        ),
        (
            "acknowledgement, ms",
            {"p50": [sample.p50_ms for sample in samples], "p99": [sample.p99_ms for sample in samples]},
        ),
        ("reports per second", {"acknowledged": [sample.per_second for sample in samples]}),
    )
    for axis, (title, series) in zip(axes.flat, panels, strict=True):
        for label, values in series.items():
            axis.plot(n_reports, values, label=label, linewidth=1)
        axis.set_title(title, fontsize=10)
        axis.set_ylim(bottom=0)
        axis.legend(fontsize=8)
        axis.xaxis.set_major_formatter("{x:,.0f}")
    figure.supxlabel("reports acknowledged")
    figure.savefig(path)


def _sample(pids: list[int], *, n_reports: int) -> ServiceSample:
    processes = family(pids)
    return ServiceSample(
        at=time.perf_counter(),
        n_reports=n_reports,
        memory_mib=resident_bytes(processes) / MIB,
        n_handles=n_handles(processes),
        n_threads=n_threads(processes),
    )


def _with_latencies(samples: Sequence[ServiceSample], sent: Sent) -> list[ServiceSample]:
    """Return the samples with the acknowledgements of each interval between two."""
    at, seconds = np.array(sent.acknowledged_at), np.array(sent.seconds)
    found = []
    for before, sample in pairwise(samples):
        between = seconds[(at > before.at) & (at <= sample.at)]
        if len(between):
            p50, p99 = np.quantile(between, (0.5, 0.99)) * 1000
            per_second = len(between) / (sample.at - before.at)
            found.append(replace(sample, p50_ms=float(p50), p99_ms=float(p99), per_second=per_second))
    return found
