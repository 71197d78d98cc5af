"""Closed batches and decisions as rows, which of them a read wants, and the sets of names that they share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from sqlalchemy import ColumnElement, Connection, Select, Table, select

from trmon.domain.batches.batch import BatchRow, DecisionRow, Quarantined, QuarantinePart, quarantined
from trmon.domain.identity import BatchKey
from trmon.store.database import pg_statement
from trmon.store.database.upsert import Row, insert_new, upsert
from trmon.store.rows.mapping import Codec, RowMapping
from trmon.store.schema import tables

Names = tuple[str, ...]


class NameDictionary:
    """A cache of the table `name_set`; any thread may read, only the writer's thread may add names."""

    def __init__(self) -> None:
        self._names: dict[int, Names] = {}
        self._ids: dict[Names, int] = {}

    def forget(self) -> None:
        """Clear the cache after a rollback, which may have removed rows that it holds."""
        self._ids.clear()
        self._names.clear()

    def id_of(self, connection: Connection, names: Names) -> int:
        """Return the id of a set of names; a new set is inserted."""
        if names not in self._ids:
            text = msgspec.json.encode(names).decode()
            pg_statement.lock_exclusively(connection, pg_statement.AdvisoryLock.NAMES)
            insert_new(connection, tables.name_set, rows=[{"names": text}])
            query = select(tables.name_set.c.id).where(tables.name_set.c.names == text)
            self._ids[names] = connection.scalars(query).one()
        return self._ids[names]

    def read(self, connection: Connection, ids: Iterable[int]) -> dict[int, Names]:
        """Return the sets of names by id."""
        wanted = set(ids)
        # The writer's thread may clear the cache at any moment: each id is looked up once.
        names = {id_: cached for id_ in wanted if (cached := self._names.get(id_)) is not None}
        if missing := wanted - names.keys():
            query = select(tables.name_set).where(tables.name_set.c.id.in_(missing))
            for row in connection.execute(query):
                names[row.id] = self._names[row.id] = msgspec.json.decode(row.names, type=Names)
        return names


def pack_values(values: Mapping[str, float]) -> bytes:
    """Return values as little-endian float64 in order, NaN and infinity included."""
    return np.array(list(values.values()), "<f8").tobytes()


def unpack_values(names: Names, data: bytes) -> dict[str, float]:
    """Return packed values by name."""
    return dict(zip(names, np.frombuffer(data, "<f8").tolist(), strict=True))


KEY_MAPPING = RowMapping(BatchKey, renamed={"update": "update_index"})
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
    rows = [KEY_MAPPING.to_row(decision.key) | _DECISION.to_row(decision) for decision in decisions]
    upsert(connection, tables.decision, key=(*tables.BATCH_KEY, "policy_hash"), rows=rows)


def decision_from_row(row: Any) -> DecisionRow:
    """Return the decision of a row."""
    return _DECISION.from_row(row, key=KEY_MAPPING.from_row(row))


def is_batch(table: Table, key: BatchKey) -> list[ColumnElement[bool]]:
    """Return the predicates that select the rows of a batch."""
    return [table.c[name] == value for name, value in KEY_MAPPING.to_row(key).items()]


def _batch_row(connection: Connection, batch: BatchRow, names: NameDictionary) -> Row:
    columns = KEY_MAPPING.to_row(batch.key) | BATCH_MAPPING.to_row(batch)
    return columns | {
        "signal_names": names.id_of(connection, tuple(batch.signals)),
        "signals": pack_values(batch.signals),
        "scalar_names": names.id_of(connection, tuple(batch.scalars)),
        "scalars": pack_values(batch.scalars),
        "quarantined": columns["quarantined"] or None,
    }


def _batch_from_row(row: Any, name_sets: Mapping[int, Names]) -> BatchRow:
    """Return the batch of a row; if its values are damaged, a batch without them that names the damage."""
    key = KEY_MAPPING.from_row(row)
    try:
        signals = unpack_values(name_sets[row.signal_names], row.signals)
        scalars = unpack_values(name_sets[row.scalar_names], row.scalars)
    except ValueError as error:
        damage = quarantined(QuarantinePart.ROW, "the stored row", error)
        return BATCH_MAPPING.from_row(row, key=key, signals={}, scalars={}).with_quarantined([damage])
    return BATCH_MAPPING.from_row(row, key=key, signals=signals, scalars=scalars)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSelection:
    """At most `limit` batches, in the order in which they closed or, `newest_first`, in the reverse order.

    `after` and `before` are ordinals that are left out.
    """

    limit: int
    newest_first: bool = False
    step: int | None = None
    after: int | None = None
    before: int | None = None

    def conditions(self, *, step: Any, ordinal: Any) -> list[Any]:
        """Return the conditions on the steps and ordinals of batches, which are columns of a table or arrays."""
        found = [] if self.step is None else [step == self.step]
        if self.after is not None:
            found.append(ordinal > self.after)
        if self.before is not None:
            found.append(ordinal < self.before)
        return found

    def merged(self, *parts: Iterable[BatchRow]) -> list[BatchRow]:
        """Return the selection from those of several places."""
        rows = sorted((row for part in parts for row in part), key=lambda row: row.ordinal, reverse=self.newest_first)
        return rows[: self.limit]


@dataclass(frozen=True, slots=True)
class StepUpdates:
    """A step of an attempt with its first and last update; None, the whole rollout batch, comes first."""

    step: int
    first: int | None
    last: int | None


def selected_batches(found: Select[Any], selection: BatchSelection) -> Select[Any]:
    """Return a query for the selection from a query of rows of batches."""
    table = tables.batch.c
    found = found.where(*selection.conditions(step=table.step, ordinal=table.ordinal))
    return found.order_by(table.ordinal.desc() if selection.newest_first else table.ordinal).limit(selection.limit)
