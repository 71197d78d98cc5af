"""Convert stored reports to Arrow: their rows with histograms, and one row per sequence with all statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trmon.domain.model.errors import Damaged
from trmon.store.archive.archived_tables import HISTOGRAMS, REPORTS
from trmon.store.rows import report_codec
from trmon_client.core.column_schema import COLUMNS, PAIRS
from trmon_client.core.columns import Columns
from trmon_client.core.wire import unpack_bits

_ARROW_TYPES = {"f8": pa.float64(), "f4": pa.float32(), "i8": pa.int64()}
_KEY = ("attempt_id", "step", "update_index", "rank", "chunk")
"""The report of a sequence; `place` is its index within the report."""

NAME = "sequences"
SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in (*_KEY, "place")),
        pa.field("accepted", pa.bool_()),
        *(pa.field(name, _ARROW_TYPES[spec.dtype]) for name, spec in COLUMNS.items()),
    ]
)
REPORTS_SCHEMA = pa.schema([*REPORTS.schema, *HISTOGRAMS])


def reports_to_arrow(rows: Sequence[Any]) -> tuple[Any, Any]:
    """Return stored reports as two record batches: the rows with their histograms, and their sequences.

    A damaged report keeps its stored payload, and has no histograms and no sequences.
    """
    unpacked = [_unpack(row.payload) for row in rows]
    plain = REPORTS.to_arrow([row._asdict() for row in rows])
    histograms = [_histogram(unpacked, pair, field.type) for pair, field in zip(PAIRS, HISTOGRAMS, strict=True)]
    reports = pa.RecordBatch.from_arrays([*plain.columns, *histograms], schema=REPORTS_SCHEMA)
    return reports, _decoded_sequences(rows, unpacked)


def sequences_to_arrow(rows: Sequence[Any]) -> Any:
    """Return the sequences of stored reports as a record batch; a damaged report has none."""
    return _decoded_sequences(rows, [_unpack(row.payload) for row in rows])


def _decoded_sequences(rows: Sequence[Any], unpacked: Sequence[Columns | None]) -> Any:
    decoded = [(row, columns) for row, columns in zip(rows, unpacked, strict=True) if columns is not None]
    return _sequences([row for row, _ in decoded], [columns for _, columns in decoded])


def _unpack(payload: bytes) -> Columns | None:
    try:
        return report_codec.unpack_report(payload)[1]()
    except Damaged:
        return None


def _sequences(rows: Sequence[Any], unpacked: Sequence[Columns]) -> Any:
    if not rows:
        return pa.RecordBatch.from_pylist([], schema=SCHEMA)
    counts = [columns.n_sequences for columns in unpacked]
    of_row = np.repeat(np.arange(len(rows)), counts)
    keys = [pa.array([getattr(row, name) for row in rows], pa.int64()).take(pa.array(of_row)) for name in _KEY]
    place = np.concatenate([np.arange(n) for n in counts])
    accepted = np.concatenate([unpack_bits(row.accepted, n) for row, n in zip(rows, counts, strict=True)])
    columns = [_column(unpacked, name, counts) for name in COLUMNS]
    return pa.RecordBatch.from_arrays([*keys, pa.array(place), pa.array(accepted), *columns], schema=SCHEMA)


def _column(unpacked: Sequence[Columns], name: str, counts: Sequence[int]) -> Any:
    kind = _ARROW_TYPES[COLUMNS[name].dtype]
    if not any(name in columns for columns in unpacked):
        return pa.nulls(sum(counts), kind)
    parts = [
        pa.array(columns[name], kind) if name in columns else pa.nulls(n, kind)
        for columns, n in zip(unpacked, counts, strict=True)
    ]
    return pa.concat_arrays(parts)


def _histogram(unpacked: Sequence[Columns | None], pair: Any, kind: Any) -> Any:
    histograms = (None if columns is None else columns.histograms.get(pair) for columns in unpacked)
    return pa.array([None if counts is None else counts.tolist() for counts in histograms], kind)
