"""Which tables an archive has, and how their rows lie in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from sqlalchemy import BigInteger, Boolean, Column, Double, Integer, LargeBinary, Select, Table, Text, select

from trmon.store.schema import tables
from trmon.store.schema.column_types import JsonColumn
from trmon_client.core.columns.schema import N_BINS, PAIRS

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
    """A table as an archive keeps it: all its columns but the run's id and what is only a cache."""

    name: str
    table: Table
    without: frozenset[str] = frozenset()

    @property
    def columns(self) -> tuple[Column[Any], ...]:
        """The columns that are kept."""
        return tuple(column for column in self.table.columns if column.name not in self.without | {"run_id"})

    @property
    def schema(self) -> Any:
        """The Arrow schema of its rows."""
        return pa.schema([pa.field(column.name, _arrow_type(column)) for column in self.columns])

    def of_run(self, run_id: int) -> Select[Any]:
        """Return a query for the rows of a run, in the order of their key."""
        rows = select(*self.columns).order_by(*self.table.primary_key.columns)
        if self.table is tables.run:
            return rows.where(tables.run.c.id == run_id)
        if "run_id" in self.table.c:
            return rows.where(self.table.c.run_id == run_id)
        attempts = select(tables.attempt.c.id).where(tables.attempt.c.run_id == run_id)
        return rows.where(self.table.c.attempt_id.in_(attempts))

    def written(self, rows: Rows) -> Any:
        """Return rows as a record batch."""
        documents = [column.name for column in self.columns if isinstance(column.type, JsonColumn)]
        encoded = [{**row, **{name: _text(row[name]) for name in documents}} for row in rows]
        return pa.RecordBatch.from_pylist(encoded, schema=self.schema)

    def read(self, batch: Any) -> list[dict[str, Any]]:
        """Return the rows of a record batch, to be inserted. Errors: KeyError, pa.ArrowException for other columns.

        A column that an older trmon did not have yet is null, where it may be.
        """
        given = pa.Table.from_batches([batch])
        for column in self.columns:
            if column.nullable and column.name not in given.schema.names:
                given = given.append_column(column.name, pa.nulls(len(given), _arrow_type(column)))
        known = given.select(self.schema.names).cast(self.schema)
        documents = [column.name for column in self.columns if isinstance(column.type, JsonColumn)]
        return [{**row, **{name: msgspec.json.decode(row[name]) for name in documents}} for row in known.to_pylist()]


RUNS = ArchivedTable(name="runs", table=tables.run)
ATTEMPTS = ArchivedTable(name="attempts", table=tables.attempt)
REPORTS = ArchivedTable(name="reports", table=tables.report)
NOTICES = ArchivedTable(name="notices", table=tables.notice)
FRONTIERS = ArchivedTable(
    name="frontiers", table=tables.run_state, without=frozenset({"ordinal", "version", "state", "outlook"})
)
ALERTS = ArchivedTable(name="alerts", table=tables.alert)
ALERT_EVENTS = ArchivedTable(name="alert_events", table=tables.alert_event)
TAGS = ArchivedTable(name="tags", table=tables.run_tag)
CLAIMS = ArchivedTable(name="claims", table=tables.claim)
DECISIONS = ArchivedTable(name="decisions", table=tables.decision)
POLICIES = ArchivedTable(name="policies", table=tables.policy_version)
ADAPTATIONS = ArchivedTable(name="adaptations", table=tables.adaptation)

PLAIN = (RUNS, ATTEMPTS, TAGS, CLAIMS, NOTICES, DECISIONS, POLICIES, ADAPTATIONS, FRONTIERS, ALERTS, ALERT_EVENTS)
"""The tables whose rows are written as they are; reports and batches also show what is inside them."""

LEFT_OUT = frozenset({"chunk_axes", "signal_chunk", "event", "delivery"})
"""What a run has beside: history in columns is made anew; a day of events and the outbox are of one database, and
nobody is to be told twice."""

HISTOGRAMS = tuple(pa.field(f"histogram_{pair}", pa.list_(pa.int64(), N_BINS)) for pair in PAIRS)
"""What reports show beside their columns: counts of d in N_BINS bins, null where a pair was not given."""


def _arrow_type(column: Column[Any]) -> Any:
    impl = getattr(column.type, "impl", column.type)
    return next(arrow for kind, arrow in _ARROW_TYPES if isinstance(impl, kind))


def _text(document: Any) -> str:
    return msgspec.json.encode(document).decode()
