"""Formats the results of scenarios as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from benchmarks.load.scenario import Result

MIB = 1 << 20


def table_of(results: Sequence[Result]) -> Table:
    """Return a table with one row per scenario."""
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
