"""Queries over the database and its lake, run by DuckDB over Arrow.

DuckDB reads the tables given to it, and no file, no network and no other object. The rows of the database come as Arrow
streams, all of one snapshot, in the columns of the lake.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

import duckdb
import pyarrow as pa
from sqlalchemy import ColumnElement, Connection, Engine, exists, func, literal, select

from trmon.domain.errors import InvalidInput, TrmonError
from trmon.store.lake import delta_schema
from trmon.store.lake.attempt_rows import AttemptRows
from trmon.store.lake.deletions import newest_moved
from trmon.store.lake.delta_schema import LAKE_SEQUENCES, LakeTable
from trmon.store.lake.delta_tables import DeltaTables
from trmon.store.lake.location import LakeLocation
from trmon.store.lake.planning import LAKE_MEMBER_MAPPING, LakeBatch, LakeMember, member_columns
from trmon.store.rows.batches import NameDictionary
from trmon.store.schema import tables

LAKE_BATCH = "lake_batch_id"
"""The column of the lake that queries do not see."""
ATTEMPTS = delta_schema.LAKE_ATTEMPTS.name
QUERY_TABLES = (
    delta_schema.LAKE_ATTEMPTS,
    delta_schema.LAKE_BATCHES,
    delta_schema.LAKE_SEQUENCES,
    delta_schema.LAKE_DECISIONS,
    delta_schema.LAKE_ALERTS,
    delta_schema.LAKE_ALERT_EVENTS,
    delta_schema.LAKE_POLICIES,
    delta_schema.LAKE_ADAPTATIONS,
    delta_schema.LAKE_NOTES,
)
RUNS = "runs"
"""A view of the attempts: the newest one of each run, with the steps and sizes of all."""
N_ATTEMPTS = "n_attempts"
_OF_ALL_ATTEMPTS = {
    "first_step": "min",
    "newest_step": "max",
    "n_batches": "sum",
    "n_sequences": "sum",
    "n_tokens": "sum",
    "started_at": "min",
    "ended_at": "max",
}


def columns_of(table: LakeTable) -> tuple[str, ...]:
    """Return the columns of a table that queries see."""
    return tuple(name for name in table.schema.names if name != LAKE_BATCH)


def table_columns() -> dict[str, tuple[str, ...]]:
    """Return the columns of every table that a query can name."""
    columns = {table.name: columns_of(table) for table in QUERY_TABLES}
    return {RUNS: (*columns[ATTEMPTS], N_ATTEMPTS), **columns}


def runs_sql() -> str:
    """Return the query of the view `runs`."""
    of_run = "PARTITION BY database_id, run_id"
    replaced = ", ".join(
        f"CAST({function}({name}) OVER ({of_run}) AS {'DOUBLE' if name.endswith('_at') else 'BIGINT'}) AS {name}"
        for name, function in _OF_ALL_ATTEMPTS.items()
    )
    columns = f"* REPLACE ({replaced}), count(*) OVER ({of_run}) AS {N_ATTEMPTS}"
    newest = f"ordinal = max(ordinal) OVER ({of_run})"
    return f"SELECT {columns} FROM {ATTEMPTS} QUALIFY {newest}"  # noqa: S608 - names of this file


_NEWEST_ID = (1 << 63) - 1
_attempt, _run, _report = tables.attempt.c, tables.run.c, tables.report.c


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedState:
    """The rows of a database in the lake: its lake batches up to one, without runs whose deletion is not complete."""

    database_id: str
    lake_batch: int
    deleted_run_ids: tuple[int, ...]

    def in_lake(self, table: LakeTable) -> str:
        """Return the predicate that leaves out rows of the lake that are read from the database, or not complete."""
        others = f"database_id <> '{self.database_id}'"
        if table.stays:
            return others
        deleted = f" AND run_id NOT IN ({', '.join(map(str, self.deleted_run_ids))})" if self.deleted_run_ids else ""
        return f"{others} OR (lake_batch_id <= {self.lake_batch}{deleted})"


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
                table.name: TableRows(rows.stream(table, now=now), in_lake[table.name], moved.in_lake(table))
                for table in named
            }
            yield session.run(sql, given)

    def describe(self) -> str:
        """Return the tables with their columns, a line each."""
        return "\n".join(f"{name}: {', '.join(columns)}" for name, columns in table_columns().items())
