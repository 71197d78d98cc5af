"""Convert closed batches to the columns of the lake and back; signals and scalars are maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from trmon.domain.batches.batch import BatchRow
from trmon.store.archive.batches import PLAIN_FIELDS, plain_batch_row
from trmon.store.lake.lake_tables import VALUES
from trmon.store.rows.batch_rows import BATCH_MAPPING, batch_key_from_row

_SCHEMA = pa.schema([field for field in PLAIN_FIELDS if field.name != "attempt_id"])


def batches_to_lake(batches: Sequence[BatchRow]) -> Any:
    """Return batches of one attempt as a record batch without the first columns; NaN stays NaN."""
    plain = pa.RecordBatch.from_pylist([plain_batch_row(batch) for batch in batches], schema=_SCHEMA)
    maps = (_map_array([batch.signals for batch in batches]), _map_array([batch.scalars for batch in batches]))
    fields = [*_SCHEMA, pa.field("signals", VALUES), pa.field("scalars", VALUES)]
    return pa.RecordBatch.from_arrays([*plain.columns, *maps], schema=pa.schema(fields))


def batch_from_lake(row: Mapping[str, Any]) -> BatchRow:
    """Return the batch of a row of the lake, with the ids of its database."""
    return BATCH_MAPPING.from_row(
        row, key=batch_key_from_row(row), signals=dict(row["signals"]), scalars=dict(row["scalars"])
    )


def _map_array(values: Sequence[Mapping[str, float]]) -> Any:
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in values], dtype=np.int64)])
    keys = pa.array(list(chain.from_iterable(values)), pa.string())
    numbers = np.fromiter(chain.from_iterable(one.values() for one in values), np.float64, count=len(keys))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, pa.array(numbers))
