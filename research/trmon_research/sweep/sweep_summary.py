"""The summary of a sweep: how many runs of each mechanism collapsed, and when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from rich.table import Table

from trmon_research.sweep.run_file import RunRecord


def summary_table(records: Iterable[RunRecord]) -> Table:
    """Return a table of the finished runs by mechanism, and of all."""
    by_mechanism: dict[str, list[RunRecord]] = defaultdict(list)
    for record in records:
        by_mechanism[record.config.mechanism].append(record)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("mechanism")
    for header in ("runs", "collapsed", "share", "median onset", "median seconds"):
        table.add_column(header, justify="right")
    for mechanism, found in sorted(by_mechanism.items()):
        table.add_row(mechanism, *_cells(found))
    table.add_row("all", *_cells([record for found in by_mechanism.values() for record in found]), style="bold")
    return table


def _cells(records: list[RunRecord]) -> list[str]:
    onsets = [record.outcome.label.onset for record in records if record.outcome.label.onset is not None]
    seconds = [record.outcome.seconds for record in records]
    share = f"{len(onsets) / len(records):.0%}" if records else "-"
    onset = f"{median(onsets):.0f}" if onsets else "-"
    return [str(len(records)), str(len(onsets)), share, onset, f"{median(seconds):.0f}" if seconds else "-"]
