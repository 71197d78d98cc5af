"""Read and write the rows of batches and decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, Table

from trmon.domain.batches.batch import BatchRow, DecisionRow, Quarantined, QuarantinePart, quarantined
from trmon.domain.model.identity import BatchKey
from trmon.store.database.upsert import Row, upsert
from trmon.store.rows.name_dictionary import NameDictionary, Names, pack_values, unpack_values
from trmon.store.rows.row_mapping import Codec, RowMapping
from trmon.store.schema import tables

_KEY = RowMapping(BatchKey, renamed={"update": "update_index"})
_DECISION = RowMapping(DecisionRow, composed={"key"})
BATCH_MAPPING = RowMapping(
    BatchRow,
    composed={"key", "signals", "scalars"},
    codecs={
        "unconfirmed": Codec(encode=bool, decode=bool),
        # Empty in the database, whose column is not null.
        "primary_pair": Codec(encode=lambda pair: pair or "", decode=lambda stored: stored or None),
        "missing_ranks": Codec(encode=list, decode=tuple),
        "quarantined": Codec(
            encode=msgspec.to_builtins, decode=lambda stored: msgspec.convert(stored or (), tuple[Quarantined, ...])
        ),
    },
)
"""All columns but the key and the values, which the database and an archive store differently."""


def write_batches(connection: Connection, batches: Sequence[BatchRow], *, names: NameDictionary) -> None:
    """Insert batches or update the rows with the same key."""
    rows = [_batch_row(connection, batch, names) for batch in batches]
    upsert(connection, tables.batch, key=tables.BATCH_KEY, rows=rows)


def read_batches(connection: Connection, statement: Select[Any], *, names: NameDictionary) -> list[BatchRow]:
    """Return the batches that a query of whole rows finds."""
    rows = connection.execute(statement).all()
    name_sets = names.read(connection, {id_ for row in rows for id_ in (row.signal_names, row.scalar_names)})
    return [_batch_from_row(row, name_sets) for row in rows]


def write_decisions(connection: Connection, decisions: Sequence[DecisionRow]) -> None:
    """Insert decisions or update the rows of the same batch and policy."""
    rows = [key_columns(decision.key) | _DECISION.to_row(decision) for decision in decisions]
    upsert(connection, tables.decision, key=(*tables.BATCH_KEY, "policy_hash"), rows=rows)


def decision_from_row(row: Any) -> DecisionRow:
    """Return the decision of a row."""
    return _DECISION.from_row(row, key=batch_key_from_row(row))


def key_columns(key: BatchKey) -> dict[str, Any]:
    """Return the columns of a batch's key."""
    return _KEY.to_row(key)


def batch_key_from_row(row: Any) -> BatchKey:
    """Return the batch key of a row."""
    return _KEY.from_row(row)


def is_batch(table: Table, key: BatchKey) -> list[ColumnElement[bool]]:
    """Return the predicates that select the rows of a batch."""
    return [table.c[name] == value for name, value in key_columns(key).items()]


def _batch_row(connection: Connection, batch: BatchRow, names: NameDictionary) -> Row:
    columns = key_columns(batch.key) | BATCH_MAPPING.to_row(batch)
    return columns | {
        "signal_names": names.id_of(connection, tuple(batch.signals)),
        "signals": pack_values(batch.signals),
        "scalar_names": names.id_of(connection, tuple(batch.scalars)),
        "scalars": pack_values(batch.scalars),
        "quarantined": columns["quarantined"] or None,
    }


def _batch_from_row(row: Any, name_sets: Mapping[int, Names]) -> BatchRow:
    """Return the batch of a row; if its values are damaged, a batch without them that names the damage."""
    key = batch_key_from_row(row)
    try:
        signals = unpack_values(name_sets[row.signal_names], row.signals)
        scalars = unpack_values(name_sets[row.scalar_names], row.scalars)
    except ValueError as error:
        damage = quarantined(QuarantinePart.ROW, "the stored row", error)
        return BATCH_MAPPING.from_row(row, key=key, signals={}, scalars={}).with_quarantined([damage])
    return BATCH_MAPPING.from_row(row, key=key, signals=signals, scalars=scalars)
