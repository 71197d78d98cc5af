"""The Delta tables of the lake: their columns, the order of their rows, and the conversion of batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from trmon.domain.batches.batch import BatchRow
from trmon.store.archive import arrow_tables
from trmon.store.archive.arrow_tables import ArchivedTable, plain_batch_row
from trmon.store.rows.batches import BATCH_MAPPING, KEY_MAPPING

PARTITIONS = ("project", "month")
"""The month, YYYY-MM in UTC, is that of the move."""
FRONT = pa.schema(
    [
        pa.field("project", pa.string()),
        pa.field("month", pa.string()),
        pa.field("database_id", pa.string()),
        pa.field("lake_batch_id", pa.int64()),
        pa.field("run_id", pa.int64()),
        pa.field("run", pa.string()),
        pa.field("attempt_id", pa.int64()),
        pa.field("attempt", pa.string()),
    ]
)
"""The first columns of every table; (database_id, attempt_id) names an attempt in a lake of several databases."""
PRUNING_COLUMNS = ("lake_batch_id", "run_id", "attempt_id", "step", "name", "first_ordinal", "ordinal")
"""The columns whose minimum and maximum the log keeps per file."""
VALUES = pa.map_(pa.string(), pa.float64())
"""Signals and scalars by name: a new signal changes no schema."""
_RUN_FIELDS = (
    *(pa.field(name, pa.string()) for name in ("state", "mode", "owner", "config", "ending", "verdict")),
    pa.field("tags", pa.list_(pa.string())),
    pa.field("created_at", pa.float64()),
)
"""The columns of an attempt from its run, as they are when it moves; only the newest attempt has the verdict."""
_INCIDENT_FIELDS = (pa.field("cause", pa.string()), pa.field("ill_step", pa.int64()))
"""The newest incident of an attempt: the finding or rule that leads it, and the step at which the illness began."""
_SIZE_FIELDS = (
    *(pa.field(name, pa.int64()) for name in ("first_step", "newest_step", "n_batches", "n_sequences", "n_tokens")),
    pa.field("ended_at", pa.float64()),
)
"""Of the attempt's batches; it ended when the newest was closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeTable:
    """A Delta table. `order`: its rows within an attempt; `group_rows`, `group_bytes`: a row group's most.

    `archived`: the table of the database whose rows it holds, if they are unchanged. `stays`: the database keeps its
    rows once their attempt has moved, and they may change there: an alert is acknowledged, a note added.
    """

    name: str
    fields: tuple[Any, ...]
    order: tuple[str, ...]
    group_rows: int = 4096
    group_bytes: int = 32 << 20
    archived: ArchivedTable | None = None
    stays: bool = False

    @property
    def schema(self) -> Any:
        """The Arrow schema."""
        return pa.schema([*FRONT, *self.fields])

    @property
    def pruning_columns(self) -> tuple[str, ...]:
        """The columns with statistics in the log."""
        return tuple(name for name in PRUNING_COLUMNS if name in self.schema.names)


def _unchanged(archived: ArchivedTable, *order: str, **others: Any) -> LakeTable:
    fields = tuple(field for field in archived.schema if field.name != "attempt_id")
    return LakeTable(name=archived.name, fields=fields, order=order, archived=archived, **others)


_ARCHIVED_ATTEMPT = tuple(field for field in arrow_tables.ATTEMPTS.schema if field.name not in ("id", "name"))
_STEP = ("step", "update_index")

LAKE_ATTEMPTS = LakeTable(
    name="attempts", fields=(*_ARCHIVED_ATTEMPT, *_RUN_FIELDS, *_INCIDENT_FIELDS, *_SIZE_FIELDS), order=()
)
LAKE_BATCHES = LakeTable(
    name="batches",
    fields=(
        *(field for field in arrow_tables.PLAIN_FIELDS if field.name != "attempt_id"),
        pa.field("signals", VALUES),
        pa.field("scalars", VALUES),
    ),
    order=_STEP,
    group_rows=1024,
)
LAKE_SIGNAL_CHUNKS = _unchanged(arrow_tables.SIGNAL_CHUNKS, "name", "first_ordinal", group_rows=512)
LAKE_CHUNK_AXES = _unchanged(arrow_tables.CHUNK_AXES, "first_ordinal", group_rows=512)
LAKE_DECISIONS = _unchanged(arrow_tables.DECISIONS, *_STEP, "policy_hash", group_rows=2048)
LAKE_REPORTS = _unchanged(arrow_tables.REPORTS, *_STEP, "rank", "chunk", group_bytes=4 << 20)
LAKE_NOTICES = _unchanged(arrow_tables.NOTICES, "id")
LAKE_SEQUENCES = LakeTable(
    name=arrow_tables.SEQUENCES,
    fields=tuple(field for field in arrow_tables.SEQUENCES_SCHEMA if field.name != "attempt_id"),
    order=(*_STEP, "rank", "chunk", "place"),
    group_rows=65_536,
)
LAKE_ALERTS = _unchanged(arrow_tables.ALERTS, "id", stays=True)
LAKE_ALERT_EVENTS = _unchanged(arrow_tables.ALERT_EVENTS, "id", stays=True)
LAKE_POLICIES = _unchanged(arrow_tables.POLICIES, "id", stays=True)
LAKE_ADAPTATIONS = _unchanged(arrow_tables.ADAPTATIONS, "changed_at", stays=True)
LAKE_NOTES = _unchanged(arrow_tables.NOTES, "id", stays=True)

LATE_TABLES = (LAKE_REPORTS, LAKE_SEQUENCES, LAKE_NOTICES)
"""The tables that get the messages that arrive after their attempt has moved."""

LAKE_TABLES = (
    LAKE_REPORTS,
    LAKE_SEQUENCES,
    LAKE_NOTICES,
    LAKE_BATCHES,
    LAKE_DECISIONS,
    LAKE_SIGNAL_CHUNKS,
    LAKE_CHUNK_AXES,
    LAKE_ALERTS,
    LAKE_ALERT_EVENTS,
    LAKE_POLICIES,
    LAKE_ADAPTATIONS,
    LAKE_NOTES,
    LAKE_ATTEMPTS,
)
"""All tables in the order in which a lake batch is written: an attempt appears once its rows are there."""


def batches_to_lake(batches: Sequence[BatchRow]) -> Any:
    """Return batches of one attempt as a record batch without the first columns; NaN stays NaN."""
    *fields, _, _ = LAKE_BATCHES.fields
    plain = pa.RecordBatch.from_pylist([plain_batch_row(batch) for batch in batches], schema=pa.schema(fields))
    maps = (_map_array([batch.signals for batch in batches]), _map_array([batch.scalars for batch in batches]))
    return pa.RecordBatch.from_arrays([*plain.columns, *maps], schema=pa.schema(LAKE_BATCHES.fields))


def batch_from_lake(row: Mapping[str, Any]) -> BatchRow:
    """Return the batch of a row of the lake, with the ids of its database."""
    return BATCH_MAPPING.from_row(
        row, key=KEY_MAPPING.from_row(row), signals=dict(row["signals"]), scalars=dict(row["scalars"])
    )


def _map_array(values: Sequence[Mapping[str, float]]) -> Any:
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in values], dtype=np.int64)])
    keys = pa.array(list(chain.from_iterable(values)), pa.string())
    numbers = np.fromiter(chain.from_iterable(one.values() for one in values), np.float64, count=len(keys))
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys, pa.array(numbers))
