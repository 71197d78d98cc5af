"""The tables of an archive, and the conversion of their rows to Arrow and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, LargeBinary, Select, Table, Text, select

from trmon.store.schema import tables
from trmon.store.schema.column_types import JsonColumn
from trmon_client.core.column_schema import N_BINS, PAIRS

Rows = Sequence[Mapping[str, Any]]

_ARROW_TYPES: tuple[tuple[type[Any], Any], ...] = (
    (LargeBinary, pa.binary()),
    (Boolean, pa.bool_()),
    (Double, pa.float64()),
    (Text, pa.string()),
    (Integer, pa.int64()),
    (BigInteger, pa.int64()),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedTable:
    """A table in an archive: all its columns except the run's id and those that are only a cache (`excluded`)."""

    name: str
    table: Table
    excluded: frozenset[str] = frozenset()

    @property
    def columns(self) -> tuple[Column[Any], ...]:
        """The archived columns."""
        return tuple(column for column in self.table.columns if column.name not in self.excluded | {"run_id"})

    @property
    def schema(self) -> Any:
        """The Arrow schema of its rows."""
        return pa.schema([pa.field(column.name, arrow_type(column)) for column in self.columns])

    def of_run(self, run_id: int) -> Select[Any]:
        """Return a query for the rows of a run, in the order of their key."""
        rows = select(*self.columns).order_by(*self.table.primary_key.columns)
        if self.table is tables.run:
            return rows.where(tables.run.c.id == run_id)
        if "run_id" in self.table.c:
            return rows.where(self.table.c.run_id == run_id)
        attempts = select(tables.attempt.c.id).where(tables.attempt.c.run_id == run_id)
        return rows.where(self.table.c.attempt_id.in_(attempts))

    def to_arrow(self, rows: Rows) -> Any:
        """Return rows as a record batch."""
        documents = [column.name for column in self.columns if isinstance(column.type, JsonColumn)]
        encoded = [{**row, **{name: _text(row[name]) for name in documents}} for row in rows]
        return pa.RecordBatch.from_pylist(encoded, schema=self.schema)

    def from_arrow(self, record_batch: Any) -> list[dict[str, Any]]:
        """Return the rows of a record batch, ready to insert. Errors: KeyError, pa.ArrowException for other columns.

        A nullable column that an older trmon did not have is null.
        """
        archived = pa.Table.from_batches([record_batch])
        for column in self.columns:
            if column.nullable and column.name not in archived.schema.names:
                archived = archived.append_column(column.name, pa.nulls(len(archived), arrow_type(column)))
        known = archived.select(self.schema.names).cast(self.schema)
        documents = [column.name for column in self.columns if isinstance(column.type, JsonColumn)]
        return [{**row, **{name: _document(row[name]) for name in documents}} for row in known.to_pylist()]


RUNS = ArchivedTable(name="runs", table=tables.run)
ATTEMPTS = ArchivedTable(name="attempts", table=tables.attempt, excluded=frozenset({"lake_batch_id"}))
REPORTS = ArchivedTable(name="reports", table=tables.report)
NOTICES = ArchivedTable(name="notices", table=tables.notice)
FRONTIERS = ArchivedTable(
    name="frontiers", table=tables.run_state, excluded=frozenset({"ordinal", "version", "state", "outlook"})
)
ALERTS = ArchivedTable(name="alerts", table=tables.alert)
ALERT_EVENTS = ArchivedTable(name="alert_events", table=tables.alert_event)
TAGS = ArchivedTable(name="tags", table=tables.run_tag)
CLAIMS = ArchivedTable(name="claims", table=tables.claim)
DECISIONS = ArchivedTable(name="decisions", table=tables.decision)
POLICIES = ArchivedTable(name="policies", table=tables.policy_version)
ADAPTATIONS = ArchivedTable(name="adaptations", table=tables.adaptation)
NOTES = ArchivedTable(name="notes", table=tables.note)

PLAIN_TABLES = (
    RUNS,
    ATTEMPTS,
    TAGS,
    CLAIMS,
    NOTICES,
    DECISIONS,
    POLICIES,
    ADAPTATIONS,
    FRONTIERS,
    ALERTS,
    ALERT_EVENTS,
    NOTES,
)
"""The tables whose rows are written unchanged; reports and batches also get columns for their contents."""

CHUNK_AXES = ArchivedTable(name="chunk_axes", table=tables.chunk_axes)
SIGNAL_CHUNKS = ArchivedTable(name="signal_chunks", table=tables.signal_chunk)
"""The columnar history, for the lake."""

NOT_ARCHIVED = frozenset(
    {"chunk_axes", "signal_chunk", "run_summary", "event", "delivery", "lake_batch_attempt", "lake_deletion"}
)
"""The other tables of a run: an import rebuilds the columnar history, and a worker the summary; events, the outbox and
what has moved to the lake belong to one database, and copying them would send notifications twice."""

HISTOGRAMS = tuple(pa.field(f"histogram_{pair}", pa.list_(pa.int64(), N_BINS)) for pair in PAIRS)
"""The extra columns of reports: counts of d in N_BINS bins, null if the report lacks the pair."""


def arrow_type(column: Column[Any]) -> Any:
    """Return the Arrow type of a column of the database."""
    impl = getattr(column.type, "impl", column.type)
    return next(arrow for kind, arrow in _ARROW_TYPES if isinstance(impl, kind))


def _document(text: str | None) -> Any:
    return None if text is None else msgspec.json.decode(text)


def _text(document: Any) -> str:
    return msgspec.json.encode(document).decode()
