"""Queries over the database and its lake, run by DuckDB over Arrow.

DuckDB reads the tables given to it, and no file, no network and no other object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
from sqlalchemy import Engine

from trmon.domain.errors import InvalidInput, TrmonError
from trmon.store.lake.delta_schema import LakeTable
from trmon.store.lake.delta_tables import DeltaTables
from trmon.store.lake.location import LakeLocation
from trmon.store.query.database_rows import ArrowStream, DatabaseRows, MovedState
from trmon.store.query.tables import ATTEMPTS, LAKE_BATCH, QUERY_TABLES, RUNS, columns_of, runs_sql, table_columns
from trmon.store.rows.batches import NameDictionary

BATCH_ROWS = 4096
_WORD = re.compile(r"\w+")
_FIXED = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
}
_LOCKED = ("SET enable_external_access = false", "SET lock_configuration = true")
_READS = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)


class QueryFailed(TrmonError):
    """A query was valid, and could not be completed."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of a table: those in the lake that a predicate selects (None without any there), and the database's."""

    database: Any
    lake: Any = None
    where: str = "true"


class QuerySession:
    """One query: it names its tables, gets their rows, and is run."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, thread: Executor) -> None:
        self._connection = connection
        self._thread = thread

    def named_tables(self, sql: str) -> tuple[LakeTable, ...]:
        """Return the tables whose names are in a query. Errors: InvalidInput unless it is one query that only reads."""
        with _query_errors(()):
            statements = self._connection.extract_statements(sql)
        if len(statements) != 1 or statements[0].type not in _READS:
            raise InvalidInput("SQL", "must be one SELECT; nothing can be changed with it")
        words = {word.lower() for word in _WORD.findall(sql)}
        named = words | {ATTEMPTS} if RUNS in words else words
        return tuple(table for table in QUERY_TABLES if table.name in named)

    def run(self, sql: str, rows: Mapping[str, TableRows]) -> Any:
        """Return the result as a RecordBatchReader. Args: rows: of the tables that it names.

        Errors: InvalidInput naming the tables or columns there are; QueryFailed, also while the result is read.
        """
        columns = f"* EXCLUDE ({LAKE_BATCH})"
        for table in QUERY_TABLES:
            # One that the query does not name has no rows.
            found, stored = rows.get(table.name), f"_database_{table.name}"
            self._connection.register(stored, table.schema.empty_table() if found is None else found.database)
            selected = f"SELECT {columns} REPLACE (NULL::VARCHAR AS month) FROM {stored}"  # noqa: S608 - a fixed name
            if found is not None and found.lake is not None:
                moved = f"_lake_{table.name}"
                self._connection.register(moved, found.lake)
                selected += f" UNION ALL BY NAME SELECT {columns} FROM {moved} WHERE {found.where}"  # noqa: S608 - as above
            self._connection.execute(f"CREATE VIEW {table.name} AS {selected}")
        self._connection.execute(f"CREATE VIEW {RUNS} AS {runs_sql()}")
        for statement in _LOCKED:
            self._connection.execute(statement)
        named = [table for table in QUERY_TABLES if table.name in rows]
        streams = [table.database for table in rows.values()]
        with _query_errors(named, streams):
            reader = self._in_thread(lambda: self._connection.sql(sql).to_arrow_reader(BATCH_ROWS))
        return pa.RecordBatchReader.from_batches(reader.schema, self._batches(reader, named, streams))

    def _batches(self, reader: Any, named: Sequence[LakeTable], streams: Sequence[Any]) -> Iterator[Any]:
        with _query_errors(named, streams):
            while (batch := self._in_thread(lambda: next(reader, None))) is not None:
                yield batch

    def _in_thread(self, step: Callable[[], Any]) -> Any:
        """Return what a function returns; this thread notices Ctrl-C meanwhile, as one in DuckDB would not."""
        return self._thread.submit(step).result()


@contextmanager
def open_session(*, memory: str) -> Iterator[QuerySession]:
    """Open a session with a memory limit such as 2GB; what exceeds it goes to temporary files.

    Errors: InvalidInput for a limit that is none.
    """
    with TemporaryDirectory(prefix="trmon-query-") as folder:
        try:
            connection = duckdb.connect(":memory:", config={**_FIXED, "memory_limit": memory, "temp_directory": folder})
        except duckdb.Error as error:
            raise InvalidInput("--memory", f"{memory!r} is not a size such as 2GB") from error
        with closing(connection), ThreadPoolExecutor(1) as thread:
            try:
                yield QuerySession(connection, thread)
            except KeyboardInterrupt:
                # Until the thread is idle: a query that has only been submitted takes no notice.
                idle = thread.submit(lambda: None)
                while not idle.done():
                    connection.interrupt()
                    wait([idle], timeout=0.1)
                raise


@contextmanager
def _query_errors(named: Sequence[LakeTable], streams: Sequence[Any] = ()) -> Iterator[None]:
    try:
        yield
    except (duckdb.CatalogException, duckdb.ParserException) as error:
        raise InvalidInput("SQL", f"{_first_line(error)}; the tables are {', '.join(table_columns())}") from error
    except duckdb.BinderException as error:
        columns = "; ".join(f"{table.name} has {', '.join(columns_of(table))}" for table in named)
        raise InvalidInput("SQL", f"{_first_line(error)}; {columns}") from error
    except (duckdb.Error, pa.ArrowException) as error:
        failures = (stream.failure for stream in streams if isinstance(stream, ArrowStream) and stream.failure)
        failure = next(failures, error)
        if isinstance(failure, TrmonError):
            raise failure from error
        raise QueryFailed(f"the query failed: {_first_line(failure)}") from failure


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


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
            named, moved = session.named_tables(sql), rows.moved()
            in_lake = {table.name: None if self._lake is None else self._lake.dataset(table) for table in named}
            given = {
                table.name: TableRows(rows.stream(table, now=now), in_lake[table.name], _where(table, moved))
                for table in named
            }
            yield session.run(sql, given)

    def describe(self) -> str:
        """Return the tables with their columns, a line each."""
        return "\n".join(f"{name}: {', '.join(columns)}" for name, columns in table_columns().items())


def _where(table: LakeTable, moved: MovedState) -> str:
    """Return the predicate that leaves out rows of the lake that are read from the database, or not complete."""
    others = f"database_id <> '{moved.database_id}'"
    if table.stays:
        return others
    deleted = f" AND run_id NOT IN ({', '.join(map(str, moved.deleted_run_ids))})" if moved.deleted_run_ids else ""
    return f"{others} OR (lake_batch_id <= {moved.lake_batch}{deleted})"
