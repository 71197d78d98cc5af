"""Counts the series of /metrics for many active runs, and times scrapes of them; prints a table by metric.

Each run reports three steps of rollout, old and current log-probs and one scalar. Times are on the same cores as the
service, which has processed every run. CPU time is that of the service alone, without its worker, and steadier than the
time of a scrape where other work shares the cores.

PYTHONPATH=.:client python benchmarks/bench_metrics.py [RUNS]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console
from rich.table import Table

from tests.fixtures.service import ServiceProcess
from tests.fixtures.trainer import train
from trmon.domain.identity import RunKey

RUNS = 300
SCRAPES = 21
SHOWN = 12
STEPS = range(3)


@dataclass(frozen=True)
class Scraped:
    """The last of several scrapes, the seconds of each, and the CPU time of the service for each after the first."""

    text: str
    seconds: list[float]
    cpu_seconds: float


def main(n_runs: int) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        service = ServiceProcess(Path(folder) / "data")
        try:
            with service.client() as client:
                for i in range(n_runs):
                    train(client, RunKey("math", f"run-{i:04}"), steps=STEPS)
                report(scrape(client, pid=service.process.pid), n_runs)
        finally:
            service.kill()


def scrape(client: httpx.Client, *, pid: int) -> Scraped:
    """Scrape several times."""
    seconds, cpu = [], []
    for _ in range(SCRAPES):
        start = time.perf_counter()
        text = client.get("/metrics").text
        seconds.append(time.perf_counter() - start)
        cpu.append(cpu_seconds(pid))
    return Scraped(text, seconds, (cpu[-1] - cpu[0]) / (SCRAPES - 1))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def report(scraped: Scraped, n_runs: int) -> None:
    """Print the series by metric, the largest first, and the times."""
    text, seconds = scraped.text, scraped.seconds
    counts = Counter(sample.name for family in text_string_to_metric_families(text) for sample in family.samples)
    total = counts.total()
    table = Table("metric", "series", "share")
    for name, n in counts.most_common(SHOWN):
        table.add_row(name, f"{n:,}", f"{n / total:.0%}")
    table.add_row("all", f"{total:,}", "100%")
    console = Console()
    console.print(table)
    console.print(
        f"{n_runs} runs, {len(text):,} bytes; first scrape {seconds[0] * 1e3:.0f} ms, "
        f"the others: median {statistics.median(seconds[1:]) * 1e3:.0f} ms, "
        f"least {min(seconds[1:]) * 1e3:.0f} ms, CPU time {scraped.cpu_seconds * 1e3:.0f} ms"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
