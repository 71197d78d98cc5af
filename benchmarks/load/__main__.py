"""Runs load scenarios against their own services and prints the results; bounded in time, on loopback only.

PYTHONPATH=. python -m benchmarks.load [--seconds 10] [--connections 4] [--fleet]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.table import Table

from benchmarks.load.backlog import BACKLOGS, LiveResult, play_backlog
from benchmarks.load.processes import load_average, unwind_on_sigterm
from benchmarks.load.scenario import Result, Scenario, play
from benchmarks.load.sending import Pace
from benchmarks.load.workload import Workload

BURST_RANKS = 32
MIB = 1 << 20


def main() -> None:
    unwind_on_sigterm()
    given = _arguments()
    console = Console(width=150)
    results = [play(scenario, is_fleet=given.fleet) for scenario in _fast(given)]
    paced = _paced(given, top=results[0].per_second)
    results += [play(scenario, is_fleet=given.fleet) for scenario in paced]
    console.print(_table(results))
    live = [play_backlog(backlog, seconds=given.seconds, is_fleet=given.fleet) for backlog in BACKLOGS]
    console.print(_live_table(live))
    console.print(f"load average after it: {load_average()}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks.load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each scenario sends, at most 300")
    parser.add_argument("--connections", type=int, default=4, help="keep-alive connections, at most 64")
    parser.add_argument("--fleet", action="store_true", help="start an API process, two workers and PostgreSQL")
    given = parser.parse_args()
    given.seconds, given.connections = min(given.seconds, 300.0), min(given.connections, 64)
    return given


def _fast(given: argparse.Namespace) -> list[Scenario]:
    """Closed-loop scenarios: each connection sends its next report as soon as the last one is acknowledged."""
    n = given.connections
    pace = Pace(seconds=given.seconds)
    return [
        Scenario(name=f"{n} ranks of one run", workload=Workload(n_ranks=n), n_connections=n, pace=pace),
        Scenario(name=f"{n} runs of one rank", workload=Workload(n_runs=n, n_ranks=1), n_connections=n, pace=pace),
        Scenario(name="20 runs of 8 ranks", workload=Workload(n_runs=20, n_ranks=8), n_connections=n, pace=pace),
    ]


def _paced(given: argparse.Namespace, *, top: float) -> list[Scenario]:
    """Scenarios at half the rate of the first one: evenly spaced, and all ranks of a step at once."""
    n, pace = given.connections, Pace(seconds=given.seconds, per_second=top / 2)
    return [
        Scenario(name="steady, half of the first", workload=Workload(n_ranks=n), n_connections=n, pace=pace),
        Scenario(
            name=f"{BURST_RANKS} ranks at once, half of the first",
            workload=Workload(n_ranks=BURST_RANKS),
            n_connections=BURST_RANKS,
            pace=replace(pace, at_once=True),
        ),
    ]


def _table(results: Sequence[Result]) -> Table:
    columns = ("scenario", "reports", "a second", "ack p50 ms", "ack p99 ms", "CPU ms/report", "close lag ms")
    table = Table(*columns, "drain s", "bytes/report", "of raw", "MiB", "429", "lost", "twice", title="Reports")
    for result in results:
        raw = result.scenario.workload.raw_bytes()
        stored = result.stored_bytes / result.n_reports
        table.add_row(
            result.scenario.name,
            f"{result.n_reports:,}",
            f"{result.per_second:,.0f}",
            f"{result.sent.quantile_ms(0.5):.1f}",
            f"{result.sent.quantile_ms(0.99):.1f}",
            f"{result.cpu_ms:.2f}",
            f"{result.close_lag_ms:.0f}",
            f"{result.drain_seconds:.1f}",
            f"{stored:,.0f}",
            f"{stored / raw:.0%}",
            f"{result.resident_bytes / MIB:.0f}",
            f"{result.sent.refused}",
            f"{result.verdict.lost}",
            f"{result.verdict.duplicated}",
        )
    return table


def _live_table(results: Sequence[LiveResult]) -> Table:
    title = "From the acknowledgement of a live report until it is judged"
    table = Table("backlog", "live reports", "p50 s", "p99 s", "worst s", "runs left", title=title)
    for result in results:
        quantiles = (f"{result.quantile(share):.2f}" for share in (0.5, 0.99, 1.0))
        table.add_row(result.backlog.name, str(len(result.waited)), *quantiles, f"{result.n_left:,}")
    return table


if __name__ == "__main__":
    main()
