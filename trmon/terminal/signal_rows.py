"""Signals by step as rows of text: CSV, JSON Lines or a table."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import Any, TextIO

from rich import box
from rich.table import Table

from trmon.domain.finding import JsonNumber, json_number
from trmon_client.api import SignalHistory


def write_csv(history: SignalHistory, out: TextIO) -> None:
    """Write a header and a row a step; NaN is an empty cell."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["step", *history.bands])
    writer.writerows(_rows(history))


def write_json_lines(history: SignalHistory, out: TextIO) -> None:
    """Write an object a step; NaN is null, infinities are "inf" and "-inf"."""
    rows = (
        {"step": step, "signals": dict(zip(history.bands, values, strict=True))} for step, *values in _rows(history)
    )
    out.writelines(f"{json.dumps(row)}\n" for row in rows)


def signal_table(history: SignalHistory) -> Table:
    """Return the rows as a table."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in ("step", *history.bands):
        table.add_column(name, justify="right")
    for step, *values in _rows(history):
        table.add_row(f"{step:,}", *("-" if value is None else f"{float(value):.6g}" for value in values))
    return table


def _rows(history: SignalHistory) -> Iterator[tuple[Any, ...]]:
    columns: list[list[JsonNumber]] = [[*map(json_number, history[name].tolist())] for name in history.bands]
    return zip(history.step.tolist(), *columns, strict=True)
