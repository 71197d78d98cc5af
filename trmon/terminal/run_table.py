"""Runs as a table of text."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.table import Table
from rich.text import Text

from trmon.terminal.styles import last_seen_text
from trmon_client.api import RunInfo


def run_table(runs: Iterable[RunInfo], *, now: float) -> Table:
    """Return the table of runs. Args: now: seconds since the epoch."""
    table = Table("run", "state", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("step", justify="right")
    for column in ("seen", "owner", "tags", "firing"):
        table.add_column(column, overflow="fold")
    for run in runs:
        step = "-" if run.last_step is None else f"{run.last_step:,}"
        cells = (
            last_seen_text(run.last_report_at, now=now),
            run.owner or "",
            ", ".join(run.tags),
            ", ".join(run.firing),
        )
        table.add_row(*map(Text, (run.name, run.state, step, *cells)))
    return table
