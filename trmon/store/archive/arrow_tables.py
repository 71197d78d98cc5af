"""The tables of an archive, and the conversion of their rows to Arrow and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Integer,
    LargeBinary,
    Select,
    Table,
    Text,
    select,
)

from trmon.domain.batches.batch import BatchRow
from trmon.domain.errors import Damaged
from trmon.store.rows import messages
from trmon.store.rows.batches import BATCH_MAPPING, KEY_MAPPING, NameDictionary, Names
from trmon.store.schema import tables
from trmon.store.schema.column_types import UNREADABLE, JsonColumn
from trmon_client.core.column_schema import COLUMNS, N_BINS, PAIRS
from trmon_client.core.columns import Columns
from trmon_client.core.wire import unpack_bits

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
        """Return rows as a record batch. Errors: Damaged."""
        documents = [column.name for column in self.columns if isinstance(column.type, JsonColumn)]
        encoded = [{**row, **{name: msgspec.json.encode(row[name]).decode() for name in documents}} for row in rows]
        try:
            return pa.RecordBatch.from_pylist(encoded, schema=self.schema)
        except (pa.ArrowException, *UNREADABLE) as error:
            raise Damaged(f"a stored row of {self.table.name} is damaged: {error}") from error

    def from_arrow(self, record_batch: Any) -> list[dict[str, Any]]:
        """Return the rows of a record batch, ready to insert. Errors: KeyError, pa.ArrowException for other columns.

        A nullable column that an older trmon did not have is null.
        """
        archived = pa.Table.from_batches([record_batch])
        for column in self.columns:
            if column.nullable and column.name not in archived.schema.names:
                archived = archived.append_column(column.name, pa.nulls(len(archived), arrow_type(column)))
        known = archived.select(self.schema.names).cast(self.schema)
        documents = {column.name: column.type for column in self.columns if isinstance(column.type, JsonColumn)}
        return [
            {**row, **{name: kind.decode(row[name]) for name, kind in documents.items()}} for row in known.to_pylist()
        ]


RUNS = ArchivedTable(name="runs", table=tables.run)
ATTEMPTS = ArchivedTable(name="attempts", table=tables.attempt, excluded=frozenset({"lake_batch_id"}))
REPORTS = ArchivedTable(name="reports", table=tables.report)
NOTICES = ArchivedTable(name="notices", table=tables.notice)
FRONTIERS = ArchivedTable(name="frontiers", table=tables.run_state, excluded=frozenset({"ordinal", "version", "state"}))
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

HISTOGRAMS = tuple(pa.field(f"histogram_{pair}", pa.list_(pa.int64(), N_BINS)) for pair in PAIRS)
"""The extra columns of reports: counts of d in N_BINS bins, null if the report lacks the pair."""


def arrow_type(column: Column[Any]) -> Any:
    """Return the Arrow type of a column of the database."""
    impl = getattr(column.type, "impl", column.type)
    return next(arrow for kind, arrow in _ARROW_TYPES if isinstance(impl, kind))


BATCHES = "batches"
_QUARANTINED = pa.struct([pa.field(name, pa.string()) for name in ("part", "place", "reason")])
_LIST_TYPES = {"missing_ranks": pa.list_(pa.int64()), "quarantined": pa.list_(_QUARANTINED)}
"""Columns that the database stores as JSON documents."""
_COLUMNS = [name for name in (*tables.BATCH_KEY, *BATCH_MAPPING.columns) if name != "run_id"]
_TYPES = {name: _LIST_TYPES.get(name) or arrow_type(tables.batch.c[name]) for name in _COLUMNS}
_STRUCTS = ("signals", "scalars")
PLAIN_FIELDS = tuple(pa.field(*item) for item in _TYPES.items())
"""All columns but the values."""


@dataclass(frozen=True, slots=True)
class BatchNames:
    """The signals and scalars that a project's batches have; all its runs share one schema."""

    signals: Names
    scalars: Names

    @property
    def schema(self) -> Any:
        """The Arrow schema of batches; parquet cannot store a struct without fields, so an empty one is left out."""
        structs = dict(zip(_STRUCTS, (self.signals, self.scalars), strict=True))
        return pa.schema(
            [
                *PLAIN_FIELDS,
                *(pa.field(name, _struct(names)) for name, names in structs.items() if names),
            ]
        )


def batch_names(connection: Connection, project: str, *, names: NameDictionary) -> BatchNames:
    """Return the names that the batches of a project have, in the order in which they first appeared."""
    table = tables.batch
    query = select(table.c.signal_names, table.c.scalar_names).join(tables.run).where(tables.run.c.project == project)
    pairs = sorted(tuple(row) for row in connection.execute(query.distinct()))
    name_sets = names.read(connection, {id_ for pair in pairs for id_ in pair})
    columns = zip(*pairs, strict=True) if pairs else ((), ())
    return BatchNames(*(tuple(dict.fromkeys(name for id_ in ids for name in name_sets[id_])) for ids in columns))


def batches_to_arrow(batches: Sequence[BatchRow], names: BatchNames) -> Any:
    """Return batches as a record batch; a value that a batch lacks is null, and NaN stays NaN."""
    rows = [plain_batch_row(batch) | {"signals": batch.signals, "scalars": batch.scalars} for batch in batches]
    return pa.RecordBatch.from_pylist(rows, schema=names.schema)


def batches_from_arrow(record_batch: Any) -> list[BatchRow]:
    """Return the batches of a record batch with the ids of the archive and run id 0.

    Errors: KeyError, pa.ArrowException if the columns differ.
    """
    archived = pa.Table.from_batches([record_batch])
    known = [_typed(field) for field in archived.schema if field.name in _TYPES or field.name in _STRUCTS]
    return [_batch(row) for row in archived.select([field.name for field in known]).cast(pa.schema(known)).to_pylist()]


def plain_batch_row(batch: BatchRow) -> dict[str, Any]:
    """Return the columns of a batch except its values."""
    return KEY_MAPPING.to_row(batch.key) | BATCH_MAPPING.to_row(batch)


def _batch(row: dict[str, Any]) -> BatchRow:
    # Archives of an older trmon lack these columns.
    stored = {"quarantined": None, "unconfirmed": None} | row | {"run_id": 0}
    return BATCH_MAPPING.from_row(
        stored,
        key=KEY_MAPPING.from_row(row),
        signals=_present(row.get("signals")),
        scalars=_present(row.get("scalars")),
    )


def _typed(field: Any) -> Any:
    if field.name not in _STRUCTS:
        return pa.field(field.name, _TYPES[field.name])
    if not pa.types.is_struct(field.type):
        raise pa.ArrowTypeError(f"{field.name} is {field.type}")
    return pa.field(field.name, _struct(tuple(one.name for one in field.type)))


def _present(values: dict[str, float | None] | None) -> dict[str, float]:
    return {name: value for name, value in (values or {}).items() if value is not None}


def _struct(names: Names) -> Any:
    return pa.struct([pa.field(name, pa.float64()) for name in names])


_COLUMN_TYPES = {"f8": pa.float64(), "f4": pa.float32(), "i8": pa.int64()}
_SEQUENCE_KEY = ("attempt_id", "step", "update_index", "rank", "chunk")
"""The report of a sequence; `place` is its index within the report."""

SEQUENCES = "sequences"
SEQUENCES_SCHEMA = pa.schema(
    [
        *(pa.field(name, pa.int64()) for name in (*_SEQUENCE_KEY, "place")),
        pa.field("accepted", pa.bool_()),
        *(pa.field(name, _COLUMN_TYPES[spec.dtype]) for name, spec in COLUMNS.items()),
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
    return reports, _sequences(rows, unpacked)


def sequences_to_arrow(rows: Sequence[Any]) -> Any:
    """Return the sequences of stored reports as a record batch; a damaged report has none."""
    return _sequences(rows, [_unpack(row.payload) for row in rows])


def _unpack(payload: bytes) -> Columns | None:
    try:
        return messages.unpack_report(payload)[1]()
    except Damaged:
        return None


def _sequences(stored: Sequence[Any], decoded: Sequence[Columns | None]) -> Any:
    known = [(row, columns) for row, columns in zip(stored, decoded, strict=True) if columns is not None]
    if not known:
        return pa.RecordBatch.from_pylist([], schema=SEQUENCES_SCHEMA)
    rows, unpacked = zip(*known, strict=True)
    counts = [columns.n_sequences for columns in unpacked]
    of_row = np.repeat(np.arange(len(rows)), counts)
    keys = [pa.array([getattr(row, name) for row in rows], pa.int64()).take(pa.array(of_row)) for name in _SEQUENCE_KEY]
    place = np.concatenate([np.arange(n) for n in counts])
    accepted = np.concatenate([unpack_bits(row.accepted, n) for row, n in zip(rows, counts, strict=True)])
    columns = [_column(unpacked, name, counts) for name in COLUMNS]
    return pa.RecordBatch.from_arrays([*keys, pa.array(place), pa.array(accepted), *columns], schema=SEQUENCES_SCHEMA)


def _column(unpacked: Sequence[Columns], name: str, counts: Sequence[int]) -> Any:
    kind = _COLUMN_TYPES[COLUMNS[name].dtype]
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
