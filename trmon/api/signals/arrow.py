"""Columns as Arrow's formats; needs pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_INTEGERS = ("attempt_id", "step", "update", "count")


def to_parquet(columns: Mapping[str, list[Any]]) -> bytes:
    """Return columns as a parquet file."""
    file = pa.BufferOutputStream()
    pq.write_table(_table(columns), file, compression="zstd")
    return bytes(file.getvalue())


def to_arrow_stream(columns: Mapping[str, list[Any]]) -> bytes:
    """Return columns as an Arrow stream."""
    table, file = _table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return bytes(file.getvalue())


def _table(columns: Mapping[str, list[Any]]) -> Any:
    kinds = {name: pa.int64() if name in _INTEGERS else pa.float64() for name in columns}
    return pa.table({name: pa.array(values, kinds[name]) for name, values in columns.items()})
