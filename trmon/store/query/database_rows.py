"""Rows of the database as Arrow streams, all of one snapshot, in the columns of the lake."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any

import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Engine, exists, func, literal, select

from trmon.store.lake.attempt_rows import AttemptRows
from trmon.store.lake.deletions import newest_moved
from trmon.store.lake.delta_schema import LAKE_SEQUENCES, LakeTable
from trmon.store.lake.planning import LAKE_MEMBER_MAPPING, LakeBatch, LakeMember, member_columns
from trmon.store.rows.batches import NameDictionary
from trmon.store.schema import tables

_NEWEST_ID = (1 << 63) - 1
_attempt, _run, _report = tables.attempt.c, tables.run.c, tables.report.c


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedState:
    """The rows of a database in the lake: its lake batches up to one, without runs whose deletion is not complete."""

    database_id: str
    lake_batch: int
    deleted_run_ids: tuple[int, ...]


class DatabaseRows:
    """The rows of a snapshot that are not read from the lake; several threads may read its streams."""

    def __init__(self, connection: Connection, *, reader: Engine, names: NameDictionary) -> None:
        self._connection = connection
        self._rows = AttemptRows(reader, names)
        self._lock = Lock()

    def moved(self) -> MovedState:
        """Return what the lake has of this database."""
        batch, deletion = tables.lake_batch.c, tables.lake_deletion.c
        newest = select(func.coalesce(func.max(batch.id), 0)).where(batch.moved_at.is_not(None))
        deleted = select(deletion.run_id).where(deletion.deleted_at.is_(None)).order_by(deletion.run_id)
        return MovedState(
            database_id=self._connection.scalars(select(tables.database_identity.c.id)).one(),
            lake_batch=self._connection.scalars(newest).one(),
            deleted_run_ids=tuple(self._connection.scalars(deleted)),
        )

    def stream(self, table: LakeTable, *, now: float) -> ArrowStream:
        """Return the rows of a table. Args: now: for the verdicts of runs, seconds."""
        return ArrowStream(table.schema, lambda: self._pieces(table, now))

    def _pieces(self, table: LakeTable, now: float) -> Iterator[Any]:
        with self._lock:
            # The attempts with rows in the database, as if they were to move together.
            batch = LakeBatch(
                id=0,
                database_id=self.moved().database_id,
                planned_at=now,
                n_reports=0,
                n_bytes=0,
                members=list(_members(self._connection, table)),
            )
            pieces = self._rows.read_from(self._connection, batch, table)
        while True:
            # A connection serves one thread at a time.
            with self._lock:
                piece = next(pieces, None)
            if piece is None:
                return
            yield piece


class ArrowStream:
    """Rows that are read again for each reader, a few hundred in memory at a time.

    `failure` is the error that ended a reader, of which DuckDB passes on the text of a traceback only.
    """

    def __init__(self, schema: Any, pieces: Callable[[], Iterator[Any]]) -> None:
        self._schema = schema
        self._pieces = pieces
        self.failure: Exception | None = None

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a new stream of the rows."""
        reader = pa.RecordBatchReader.from_batches(self._schema, self._noting_failure())
        return reader.__arrow_c_stream__(requested_schema)

    def _noting_failure(self) -> Iterator[Any]:
        try:
            yield from self._pieces()
        except Exception as error:
            self.failure = error
            raise


def _members(connection: Connection, table: LakeTable) -> Iterator[LakeMember]:
    """Yield the attempts with rows of a table that are read from the database, by project, run and attempt."""
    found = (
        select(
            *member_columns(until=_END_OF_TIME),
            _attempt.run_id,
            _attempt.id.label("attempt_id"),
            literal(False).label("is_late"),
            newest_moved(_attempt.id, "report_id").label("after_report_id"),
            literal(_NEWEST_ID).label("report_id"),
            literal(0).label("after_notice_id"),
            literal(0).label("notice_id"),
        )
        .join_from(tables.attempt, tables.run)
        .where(_run.name.not_like("~%"), _is_read_from_database(table))
        .order_by(_run.project, _attempt.run_id, _attempt.id)
    )
    for row in connection.execute(found).all():
        yield LAKE_MEMBER_MAPPING.from_row(row)


_END_OF_TIME = math.ldexp(1.0, 60)
"""Seconds."""


def _is_read_from_database(table: LakeTable) -> ColumnElement[bool]:
    is_here = _attempt.lake_batch_id.is_(None)
    if table is LAKE_SEQUENCES:
        is_late = exists().where(_report.attempt_id == _attempt.id, _report.id > newest_moved(_attempt.id, "report_id"))
        return is_here | is_late.correlate(tables.attempt)
    if not table.stays:
        return is_here
    assert table.archived is not None
    # Most attempts have no alert and no note, and each is read by a separate query.
    source = table.archived.table.c
    owner = source.attempt_id == _attempt.id if "attempt_id" in source else source.run_id == _attempt.run_id
    return exists().where(owner).correlate(tables.attempt)
