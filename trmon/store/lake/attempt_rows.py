"""Read the rows that a lake batch moves, table by table, a few hundred at a time."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Engine, Select, select

from trmon.store.archive.sequences import sequences_to_arrow
from trmon.store.archive.table_files import PIECE_REPORTS, PIECE_ROWS
from trmon.store.lake.attempt_document import attempt_document
from trmon.store.lake.batch_columns import batches_to_lake
from trmon.store.lake.lake_member import LakeBatch, LakeMember
from trmon.store.lake.lake_tables import (
    FRONT,
    LAKE_ATTEMPTS,
    LAKE_BATCHES,
    LAKE_REPORTS,
    LAKE_SEQUENCES,
    LATE_TABLES,
    LakeTable,
)
from trmon.store.rows.batch_rows import read_batches
from trmon.store.rows.name_dictionary import NameDictionary
from trmon.store.schema import tables

_TIMES = {tables.policy_version: "created_at", tables.adaptation: "changed_at", tables.note: "at"}
"""When a row was written that belongs to a run and to no attempt."""
_MESSAGES = {
    tables.report: ("after_report_id", "report_id"),
    tables.notice: ("after_notice_id", "notice_id"),
}


class AttemptRows:
    """The rows of the attempts of a lake batch, in the order of project, run, attempt and the table's own."""

    def __init__(self, reader: Engine, names: NameDictionary) -> None:
        self._reader = reader
        self._names = names

    def read(self, batch: LakeBatch, table: LakeTable) -> Iterator[Any]:
        """Yield the rows of a table as record batches; none is empty."""
        with self._reader.connect() as connection:
            yield from self.read_from(connection, batch, table)

    def read_from(self, connection: Connection, batch: LakeBatch, table: LakeTable) -> Iterator[Any]:
        """Yield the rows of a table as `read` does, of the snapshot of a connection."""
        for member in batch.members:
            if member.is_late and table not in LATE_TABLES:
                continue
            with closing(self._pieces(connection, member, table, now=batch.planned_at)) as pieces:
                for piece in pieces:
                    if piece.num_rows:
                        yield with_front(piece, batch.front(member), table)

    def _pieces(
        self, connection: Connection, member: LakeMember, table: LakeTable, *, now: float
    ) -> Generator[Any, None, None]:
        if table is LAKE_ATTEMPTS:
            yield _from_rows([attempt_document(connection, member, now=now)], table)
        elif table is LAKE_BATCHES:
            yield from self._batches(connection, member)
        elif table is LAKE_SEQUENCES:
            for rows in _partitions(connection, rows_of(member, LAKE_REPORTS), n_rows=PIECE_REPORTS):
                yield sequences_to_arrow(rows)
        else:
            n_rows = PIECE_REPORTS if table is LAKE_REPORTS else PIECE_ROWS
            assert table.archived is not None
            for rows in _partitions(connection, rows_of(member, table), n_rows=n_rows):
                yield table.archived.to_arrow([row._asdict() for row in rows])

    def _batches(self, connection: Connection, member: LakeMember) -> Iterator[Any]:
        table, last = tables.batch.c, None
        of_attempt = select(tables.batch).where(table.attempt_id == member.attempt_id)
        while True:
            newer = of_attempt if last is None else of_attempt.where(_is_after(last))
            ordered = newer.order_by(table.step, table.update_index).limit(PIECE_ROWS)
            rows = read_batches(connection, ordered, names=self._names)
            if not rows:
                return
            yield batches_to_lake(rows)
            last = (rows[-1].key.step, rows[-1].key.update)


def rows_of(member: LakeMember, table: LakeTable) -> Select[Any]:
    """Return the query for the rows of a member in a table whose rows are stored unchanged."""
    assert table.archived is not None
    source = table.archived.table
    found = select(*table.archived.columns).order_by(*(source.c[name] for name in table.order))
    if source in _TIMES:
        at = source.c[_TIMES[source]]
        return found.where(source.c.run_id == member.run_id, at >= member.since, at < member.until)
    return found.where(belongs_to(member, table))


def belongs_to(member: LakeMember, table: LakeTable) -> ColumnElement[bool]:
    """Return the predicate for the rows of a member in a table that names attempts."""
    assert table.archived is not None
    source = table.archived.table
    predicate = source.c.attempt_id == member.attempt_id
    if source in _MESSAGES:
        after, last = (getattr(member, name) for name in _MESSAGES[source])
        predicate &= (source.c.id > after) & (source.c.id <= last)
    return predicate


def with_front(piece: Any, front: dict[str, Any], table: LakeTable) -> Any:
    """Return rows with the first columns, all rows with the same values, and the table's columns in their order."""
    constants = [pa.repeat(pa.scalar(front[field.name], field.type), piece.num_rows) for field in FRONT]
    return pa.RecordBatch.from_arrays(
        [*constants, *(piece.column(field.name) for field in table.fields)], schema=table.schema
    )


def _is_after(last: tuple[int, int | None]) -> ColumnElement[bool]:
    table, (step, update) = tables.batch.c, last
    return (table.step > step) | ((table.step == step) & (table.update_index > update))


def _partitions(connection: Connection, query: Select[Any], *, n_rows: int) -> Iterator[Sequence[Any]]:
    result = connection.execute(query.execution_options(yield_per=n_rows))
    try:
        yield from result.partitions()
    finally:
        result.close()


def _from_rows(rows: Sequence[dict[str, Any]], table: LakeTable) -> Any:
    schema = pa.schema(table.fields)
    return pa.RecordBatch.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema=schema)
