"""Convert closed batches to Arrow and back; signals and scalars are structs with a field per name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from sqlalchemy import Connection, select

from trmon.domain.batches.batch import BatchRow
from trmon.store.archive.archived_tables import arrow_type
from trmon.store.rows.batch_rows import BATCH_MAPPING, batch_key_from_row, key_columns
from trmon.store.rows.name_dictionary import NameDictionary, Names
from trmon.store.schema import tables

NAME = "batches"
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
    return BatchNames(*(_union(name_sets[id_] for id_ in ids) for ids in columns))


def batches_to_arrow(batches: Sequence[BatchRow], names: BatchNames) -> Any:
    """Return batches as a record batch; a value that a batch lacks is null, and NaN stays NaN."""
    return pa.RecordBatch.from_pylist([_row(batch) for batch in batches], schema=names.schema)


def batches_from_arrow(record_batch: Any) -> list[BatchRow]:
    """Return the batches of a record batch with the ids of the archive and run id 0.

    Errors: KeyError, pa.ArrowException if the columns differ.
    """
    archived = pa.Table.from_batches([record_batch])
    known = [_typed(field) for field in archived.schema if field.name in _TYPES or field.name in _STRUCTS]
    return [_batch(row) for row in archived.select([field.name for field in known]).cast(pa.schema(known)).to_pylist()]


def plain_batch_row(batch: BatchRow) -> dict[str, Any]:
    """Return the columns of a batch except its values."""
    return key_columns(batch.key) | BATCH_MAPPING.to_row(batch)


def _row(batch: BatchRow) -> dict[str, Any]:
    return plain_batch_row(batch) | {"signals": batch.signals, "scalars": batch.scalars}


def _batch(row: dict[str, Any]) -> BatchRow:
    # Archives of an older trmon lack these columns.
    stored = {"quarantined": None, "unconfirmed": None} | row | {"run_id": 0}
    return BATCH_MAPPING.from_row(
        stored,
        key=batch_key_from_row(row),
        signals=_present(row.get("signals")),
        scalars=_present(row.get("scalars")),
    )


def _typed(field: Any) -> Any:
    """Return a field of an archive with the type that trmon writes."""
    if field.name not in _STRUCTS:
        return pa.field(field.name, _TYPES[field.name])
    if not pa.types.is_struct(field.type):
        raise pa.ArrowTypeError(f"{field.name} is {field.type}")
    return pa.field(field.name, _struct(tuple(one.name for one in field.type)))


def _present(values: dict[str, float | None] | None) -> dict[str, float]:
    return {name: value for name, value in (values or {}).items() if value is not None}


def _struct(names: Names) -> Any:
    return pa.struct([pa.field(name, pa.float64()) for name in names])


def _union(name_sets: Iterable[Names]) -> Names:
    return tuple(dict.fromkeys(name for names in name_sets for name in names))
