"""Taking a run of an archive in: out of sight until it is whole, in small transactions, so that a service goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from msgspec import structs
from sqlalchemy import Connection, Table, insert, update
from sqlalchemy.exc import IntegrityError

from trmon.domain.batches.batch import BatchRow
from trmon.domain.model.errors import Conflict, InvalidInput
from trmon.domain.model.identity import BatchKey, RunKey
from trmon.domain.runs.run import RunState
from trmon.store.archive import archived_tables, batches, table_files
from trmon.store.archive.archived_tables import ArchivedTable
from trmon.store.archive.row_ids import RowIds
from trmon.store.archive.table_files import PIECE_REPORTS, PIECE_ROWS
from trmon.store.database.upsert import insert_all, insert_new
from trmon.store.rows.batch_rows import write_batches
from trmon.store.rows.name_dictionary import NameDictionary
from trmon.store.rows.signal_chunks import extend_chunks
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction

Row = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")

SIMPLE = (
    archived_tables.TAGS,
    archived_tables.CLAIMS,
    archived_tables.DECISIONS,
    archived_tables.POLICIES,
    archived_tables.ADAPTATIONS,
    archived_tables.ALERTS,
    archived_tables.ALERT_EVENTS,
)
"""Tables in which nothing refers to a row's id."""
_UNREACHED = 1 << 62
"""A frontier beyond every report: workers leave a run alone that is not whole yet."""


def hidden_name(key: RunKey) -> RunKey:
    """Return the name of a run that is not whole yet, which no trainer can use."""
    return RunKey(key.project, f"~{key.run}")


def is_hidden_name(run: str) -> bool:
    """Whether a run's name is that of one that is not whole yet."""
    return run.startswith("~")


class RunImport:
    """One run on its way into a database, under ids of its own there."""

    def __init__(self, writer: GroupCommit, *, root: Path, run: str, names: NameDictionary) -> None:
        self._writer = writer
        self._root = root
        self._run = run
        self._names = names
        self._run_id = 0
        self._attempts: dict[int, int] = {}
        self._reports, self._notices = RowIds(), RowIds()

    def admit(self, key: RunKey) -> None:
        """Write the run under a key. Errors: InvalidInput for a damaged archive; Conflict if the key is taken now."""
        [run] = self._rows(archived_tables.RUNS)
        self._run_id = self._write(_begin, key, run)
        for attempt in self._rows(archived_tables.ATTEMPTS):
            origin = attempt["fork_of"] and self._attempt(attempt["fork_of"])
            row = {**_anew(attempt), "run_id": self._run_id, "fork_of": origin}
            [self._attempts[attempt["id"]]] = self._write(_insert_numbered, tables.attempt, [row])
        self._numbered(archived_tables.REPORTS, self._reports, n_rows=PIECE_REPORTS)
        self._numbered(archived_tables.NOTICES, self._notices, n_rows=PIECE_ROWS)
        for closed in table_files.read_decoded_rows(
            self._root, batches.NAME, run=self._run, decode=batches.batches_from_arrow
        ):
            self._write(self._write_batches, [self._batch(row) for row in closed])
        for kept in SIMPLE:
            for piece in self._pieces(kept):
                self._write(insert_all, kept.table, rows=[self._placed(row, kept.table) for row in piece])
        [frontier] = [*self._rows(archived_tables.FRONTIERS)] or [{"report_id": 0, "notice_id": 0}]
        self._writer.submit(lambda transaction: self._finish(transaction, key, run, frontier)).result()

    def _write(self, statement: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._writer.submit(lambda transaction: statement(transaction.connection, *args, **kwargs)).result()

    def _pieces(self, kept: ArchivedTable, *, n_rows: int = PIECE_ROWS) -> Iterator[list[Row]]:
        return table_files.read_decoded_rows(self._root, kept.name, run=self._run, decode=kept.read, n_rows=n_rows)

    def _rows(self, kept: ArchivedTable) -> Iterator[Row]:
        return chain.from_iterable(self._pieces(kept))

    def _numbered(self, kept: ArchivedTable, ids: RowIds, *, n_rows: int) -> None:
        for piece in self._pieces(kept, n_rows=n_rows):
            new = self._write(_insert_numbered, kept.table, [self._placed(row, kept.table) for row in piece])
            ids.extend(zip((row["id"] for row in piece), new, strict=True))

    def _write_batches(self, connection: Connection, rows: Sequence[BatchRow]) -> None:
        write_batches(connection, rows, names=self._names)
        extend_chunks(connection, rows, names=self._names)

    def _batch(self, row: BatchRow) -> BatchRow:
        key = BatchKey(self._attempt(row.key.attempt_id), row.key.step, row.key.update)
        return structs.replace(
            row, run_id=self._run_id, key=key, last_report_id=self._reports.through(row.last_report_id)
        )

    def _attempt(self, id_: int) -> int:
        if id_ not in self._attempts:
            raise InvalidInput("DIR", f"rows of {self._run} are of attempt {id_}, which is not among its attempts")
        return self._attempts[id_]

    def _placed(self, row: Row, table: Table) -> Row:
        """Return a row as one of this run in this database."""
        placed = _anew(row)
        if "run_id" in table.c:
            placed["run_id"] = self._run_id
        if placed.get("attempt_id"):  # 0 is of an alert on a run without an attempt yet
            placed["attempt_id"] = self._attempt(placed["attempt_id"])
        if "identity" in placed:
            placed["identity"] = f"{self._run_id}/{placed['identity'].partition('/')[2]}"
        return placed

    def _finish(self, transaction: Transaction, key: RunKey, run: Row, frontier: Row) -> None:
        connection, state = transaction.connection, tables.run_state
        reached = {
            "report_id": self._reports.through(frontier["report_id"]),
            "notice_id": self._notices.through(frontier["notice_id"]),
        }
        connection.execute(update(state).where(state.c.run_id == self._run_id).values(reached))
        seen = {
            "name": key.run,
            "state": run["state"],
            "archived": run["archived"],
            "attempt_id": run["attempt_id"] and self._attempt(run["attempt_id"]),
        }
        try:
            shown = connection.execute(update(tables.run).where(tables.run.c.id == self._run_id).values(seen))
        except IntegrityError as error:
            raise Conflict(f"a run {str(key)!r} has begun meanwhile; import under another project") from error
        if not shown.rowcount:
            raise Conflict(concurrent_import_message(key))
        transaction.touched.add(self._run_id)


def concurrent_import_message(key: RunKey) -> str:
    """Return what is said where another import has taken away what this one had written."""
    return f"{str(key)!r} is imported by somebody else at the same time; import again when nobody does"


def _begin(connection: Connection, key: RunKey, run: Row) -> int:
    insert_new(connection, tables.project, rows=[{"name": key.project, "created_at": run["created_at"]}])
    unseen = {"name": hidden_name(key).run, "state": RunState.FINISHED.value, "archived": True, "attempt_id": None}
    [run_id] = _insert_numbered(connection, tables.run, [{**_anew(run), "project": key.project, **unseen}])
    insert_all(
        connection, tables.run_state, rows=[{"run_id": run_id, "report_id": _UNREACHED, "notice_id": _UNREACHED}]
    )
    return run_id


def _anew(row: Mapping[str, Any]) -> Row:
    return {name: value for name, value in row.items() if name != "id"}


def _insert_numbered(connection: Connection, table: Table, rows: Sequence[Row]) -> list[int]:
    """Insert rows and return their ids, in the order of the rows."""
    return list(connection.scalars(insert(table).returning(table.c.id, sort_by_parameter_order=True), rows))
