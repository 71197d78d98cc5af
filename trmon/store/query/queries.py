"""Queries over the database and its lake."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine

from trmon.store.lake.delta_tables import DeltaTables
from trmon.store.lake.lake_location import LakeLocation
from trmon.store.query.database_rows import DatabaseRows, MovedState
from trmon.store.query.query_session import QuerySession, TableRows, open_session
from trmon.store.query.query_tables import QueryTable, table_columns
from trmon.store.rows.name_dictionary import NameDictionary

MEMORY = "2GB"


class Queries:
    """Runs SQL over a database and, where there is one, its lake; a row that has moved is read from the lake only."""

    def __init__(self, reader: Engine, *, names: NameDictionary, lake: LakeLocation | None) -> None:
        self._reader = reader
        self._names = names
        self._lake = None if lake is None else DeltaTables(lake)

    @contextmanager
    def run(self, sql: str, *, now: float, memory: str = MEMORY) -> Iterator[Any]:
        """Yield the result of a SELECT as a RecordBatchReader, whose batches are computed as they are read.

        Args: now: for the verdicts of runs, seconds; memory: what DuckDB may use, such as 2GB.
        Errors: InvalidInput naming the tables or columns there are; QueryFailed; NotReady for an unreachable lake.
        """
        with open_session(memory=memory) as session, self._reader.connect() as connection:
            rows = DatabaseRows(connection, reader=self._reader, names=self._names)
            yield session.run(sql, self._rows(session, sql, rows, now=now))

    def describe(self) -> str:
        """Return the tables with their columns, a line each."""
        return "\n".join(f"{name}: {', '.join(columns)}" for name, columns in table_columns().items())

    def _rows(self, session: QuerySession, sql: str, rows: DatabaseRows, *, now: float) -> dict[str, TableRows]:
        named, moved = session.named_tables(sql), rows.moved()
        return {
            table.name: TableRows(rows.stream(table, now=now), self._dataset(table), _where(table, moved))
            for table in named
        }

    def _dataset(self, table: QueryTable) -> Any:
        """Return the rows of the lake as a dataset, which reads only what a query needs; None if it has none."""
        return None if self._lake is None else self._lake.dataset(table.lake)


def _where(table: QueryTable, moved: MovedState) -> str:
    """Return the predicate that leaves out rows of the lake that are read from the database, or not complete."""
    others = f"database_id <> '{moved.database_id}'"
    if table.stays:
        return others
    deleted = f" AND run_id NOT IN ({', '.join(map(str, moved.deleted_run_ids))})" if moved.deleted_run_ids else ""
    return f"{others} OR (lake_batch_id <= {moved.lake_batch}{deleted})"
