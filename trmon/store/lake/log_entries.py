"""The files of a table as its log names them, and which of them can have certain rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

LogEntry = dict[str, Any]
"""A file: its `path` in the table's folder, `size_bytes`, `num_records`, `partition.*`, and `min.*` and `max.*`."""


def log_entries(delta_table: DeltaTable) -> list[LogEntry]:
    """Return all files of a table."""
    entries: list[LogEntry] = pa.table(delta_table.get_add_actions(flatten=True)).to_pylist()
    return entries


def files_with(delta_table: DeltaTable, values: dict[str, int]) -> list[LogEntry]:
    """Return the files that can have a row with these values: each lies between the file's minimum and maximum."""
    return [
        entry
        for entry in log_entries(delta_table)
        if all(_can_have(entry, name, value) for name, value in values.items())
    ]


def _can_have(entry: LogEntry, name: str, value: int) -> bool:
    low, high = entry.get(f"min.{name}"), entry.get(f"max.{name}")
    return low is None or high is None or low <= value <= high
