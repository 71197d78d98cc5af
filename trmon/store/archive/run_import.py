"""Import one run of an archive under the ids of this database, or find that it is there."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec
from msgspec import structs
from sqlalchemy import Connection, Engine, Table, insert, select, update
from sqlalchemy.exc import IntegrityError

from trmon.domain.batches.batch import BatchRow
from trmon.domain.errors import Conflict, InvalidInput
from trmon.domain.findings.verdict import with_attempts
from trmon.domain.identity import RunKey
from trmon.domain.pipeline.publish import judgement_in
from trmon.domain.runs.run import RunState, checked_author, checked_note_text
from trmon.store.archive import arrow_tables, table_files
from trmon.store.archive.arrow_tables import ATTEMPTS, ArchivedTable
from trmon.store.archive.table_files import PIECE_REPORTS, PIECE_ROWS
from trmon.store.database.upsert import insert_new, insert_rows
from trmon.store.rows.batches import NameDictionary, write_batches
from trmon.store.rows.runs import (
    ALERT_MAPPING,
    ATTEMPT_MAPPING,
    EVENT_MAPPING,
    POLICY_MAPPING,
    run_from_row,
    setting_from_document,
)
from trmon.store.rows.signal_chunks import extend_chunks
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit
from trmon.store.writing.transaction import Transaction


class RowIds:
    """Pairs of old and new ids, both ascending: an import inserts rows in the order in which they were first stored."""

    def __init__(self) -> None:
        self._old, self._new = array("q"), array("q")

    def extend(self, pairs: Iterable[tuple[int, int]]) -> None:
        """Append pairs of an old and a new id, larger than all before them."""
        for old, new in pairs:
            self._old.append(old)
            self._new.append(new)

    def newest_up_to(self, old: int) -> int:
        """Return the new id of the newest row up to an old id; 0 if there is none, since older rows may be pruned."""
        index = bisect_right(self._old, old)
        return self._new[index - 1] if index else 0


Row = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T")

UNREFERENCED_TABLES = (
    arrow_tables.TAGS,
    arrow_tables.CLAIMS,
    arrow_tables.DECISIONS,
    arrow_tables.POLICIES,
    arrow_tables.ADAPTATIONS,
    arrow_tables.ALERTS,
    arrow_tables.ALERT_EVENTS,
    arrow_tables.NOTES,
)
"""Tables whose row ids no other table refers to."""
_UNREACHED = 1 << 62
"""A frontier beyond every report, so that workers ignore a run that is being imported."""


def _check_note(row: Mapping[str, Any]) -> None:
    try:
        checked_author(row["author"])
        checked_note_text(row["text"])
    except InvalidInput as error:
        raise ValueError(f"a note: {error}") from error


_DECODERS: Mapping[str, Callable[[Mapping[str, Any]], object]] = {
    "runs": lambda row: run_from_row({**row, "last_report_at": None}, tags=()),
    "attempts": ATTEMPT_MAPPING.from_row,
    "policies": POLICY_MAPPING.from_row,
    "adaptations": lambda row: setting_from_document(row["setting"]),
    "alerts": ALERT_MAPPING.from_row,
    "alert_events": EVENT_MAPPING.from_row,
    "notes": _check_note,
    "frontiers": lambda row: judgement_in(row["outlook"] or {}),
}


def hidden_name(key: RunKey) -> RunKey:
    """Return the name of a run during its import; trainers cannot use such a name."""
    return RunKey(key.project, f"~{key.run}")


class RunImport:
    """Imports one run, whose rows get new ids; `run_id` is 0 until the run is written."""

    def __init__(self, writer: GroupCommit, *, root: Path, run: str, names: NameDictionary) -> None:
        self._writer = writer
        self._root = root
        self._run = run
        self._names = names
        self.run_id = 0
        self._attempts: dict[int, int] = {}
        self._reports, self._notices = RowIds(), RowIds()

    def write_as(self, key: RunKey) -> None:
        """Write the run under a key. Errors: InvalidInput for a damaged archive; Conflict if the key is taken."""
        [run] = self._read(arrow_tables.RUNS)
        self.run_id = self._write(_insert_hidden_run, key, run)
        for attempt in self._read(arrow_tables.ATTEMPTS):
            origin = attempt["fork_of"] and self._attempt_id(attempt["fork_of"])
            row = {**_without_id(attempt), "run_id": self.run_id, "fork_of": origin}
            [self._attempts[attempt["id"]]] = self._write(_insert_returning_ids, tables.attempt, [row])
        self._import_numbered(arrow_tables.REPORTS, self._reports, n_rows=PIECE_REPORTS)
        self._import_numbered(arrow_tables.NOTICES, self._notices, n_rows=PIECE_ROWS)
        for batches in table_files.read_decoded_rows(
            self._root, arrow_tables.BATCHES, run=self._run, decode=arrow_tables.batches_from_arrow
        ):
            self._write(self._write_batches, [self._relocated_batch(batch) for batch in batches])
        for archived in UNREFERENCED_TABLES:
            for piece in self._read_pieces(archived):
                rows = [self._relocated(row, archived.table) for row in piece]
                self._write(insert_rows, archived.table, rows=rows)
        [frontier] = [*self._read(arrow_tables.FRONTIERS)] or [{"report_id": 0, "notice_id": 0}]
        self._writer.submit(lambda transaction: self._publish(transaction, key, run, frontier)).result()

    def _write(self, statement: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return self._writer.submit(lambda transaction: statement(transaction.connection, *args, **kwargs)).result()

    def _read_pieces(self, archived: ArchivedTable, *, n_rows: int = PIECE_ROWS) -> Iterator[list[Row]]:
        pieces = table_files.read_decoded_rows(
            self._root, archived.name, run=self._run, decode=archived.from_arrow, n_rows=n_rows
        )
        for piece in pieces:
            # A row that cannot be read is refused before anything of it is written.
            if decode := _DECODERS.get(archived.name):
                for row in piece:
                    decode({**row, "run_id": 0})
            yield piece

    def _read(self, archived: ArchivedTable) -> Iterator[Row]:
        return chain.from_iterable(self._read_pieces(archived))

    def _import_numbered(self, archived: ArchivedTable, ids: RowIds, *, n_rows: int) -> None:
        """Import a table whose ids other rows refer to, and record the new ids."""
        for piece in self._read_pieces(archived, n_rows=n_rows):
            rows = [self._relocated(row, archived.table) for row in piece]
            new_ids = self._write(_insert_returning_ids, archived.table, rows)
            ids.extend(zip((row["id"] for row in piece), new_ids, strict=True))

    def _write_batches(self, connection: Connection, rows: Sequence[BatchRow]) -> None:
        write_batches(connection, rows, names=self._names)
        extend_chunks(connection, rows, names=self._names)

    def _relocated_batch(self, batch: BatchRow) -> BatchRow:
        key = structs.replace(batch.key, attempt_id=self._attempt_id(batch.key.attempt_id))
        last_report_id = self._reports.newest_up_to(batch.last_report_id)
        return structs.replace(batch, run_id=self.run_id, key=key, last_report_id=last_report_id)

    def _attempt_id(self, archived_id: int) -> int:
        if archived_id not in self._attempts:
            raise InvalidInput("DIR", f"rows of {self._run} refer to attempt {archived_id}, which the archive lacks")
        return self._attempts[archived_id]

    def _relocated(self, row: Row, table: Table) -> Row:
        relocated = _without_id(row)
        if "run_id" in table.c:
            relocated["run_id"] = self.run_id
        if relocated.get("attempt_id"):  # 0 marks an alert of a run that has no attempt yet
            relocated["attempt_id"] = self._attempt_id(relocated["attempt_id"])
        if "identity" in relocated:
            relocated["identity"] = f"{self.run_id}/{relocated['identity'].partition('/')[2]}"
        return relocated

    def _publish(self, transaction: Transaction, key: RunKey, run: Row, frontier: Row) -> None:
        """Write the frontier and give the run its name, state and attempt."""
        connection, state = transaction.connection, tables.run_state
        reached: Row = {
            "report_id": self._reports.newest_up_to(frontier["report_id"]),
            "notice_id": self._notices.newest_up_to(frontier["notice_id"]),
        }
        if outlook := frontier.get("outlook"):
            reached["outlook"] = outlook
            if (judgement := judgement_in(outlook)) is not None:  # it names attempts
                relocated = msgspec.to_builtins(with_attempts(judgement, self._attempts))
                reached["outlook"] = {**outlook, "judgement": relocated}
        connection.execute(update(state).where(state.c.run_id == self.run_id).values(reached))
        visible = {
            "name": key.run,
            "state": run["state"],
            "archived": run["archived"],
            "attempt_id": run["attempt_id"] and self._attempt_id(run["attempt_id"]),
        }
        try:
            result = connection.execute(update(tables.run).where(tables.run.c.id == self.run_id).values(visible))
        except IntegrityError as error:
            raise Conflict(f"a new run took the name {str(key)!r}; import into another project") from error
        if not result.rowcount:
            raise Conflict(concurrent_import_message(key))
        transaction.touched.add(self.run_id)


def concurrent_import_message(key: RunKey) -> str:
    """Return the error text for a run whose rows another import has deleted."""
    return f"another import of {str(key)!r} is running; import again when it has finished"


def _insert_hidden_run(connection: Connection, key: RunKey, run: Row) -> int:
    insert_new(connection, tables.project, rows=[{"name": key.project, "created_at": run["created_at"]}])
    hidden = {"name": hidden_name(key).run, "state": RunState.FINISHED.value, "archived": True, "attempt_id": None}
    [run_id] = _insert_returning_ids(connection, tables.run, [{**_without_id(run), "project": key.project, **hidden}])
    insert_rows(
        connection, tables.run_state, rows=[{"run_id": run_id, "report_id": _UNREACHED, "notice_id": _UNREACHED}]
    )
    return run_id


def _without_id(row: Mapping[str, Any]) -> Row:
    return {name: value for name, value in row.items() if name != "id"}


def _insert_returning_ids(connection: Connection, table: Table, rows: Sequence[Row]) -> list[int]:
    """Insert rows and return their ids in the same order."""
    return list(connection.scalars(insert(table).returning(table.c.id, sort_by_parameter_order=True), rows))


_IDENTITIES: dict[str, tuple[Table, tuple[str, ...], str]] = {
    "reports": (tables.report, ("step", "update_index", "rank", "chunk", "digest"), "id"),
    "notices": (tables.notice, ("launch", "rank", "sequence", "kind", "digest"), "id"),
    "batches": (tables.batch, ("step", "update_index", "ordinal"), "ordinal"),
}
"""The columns that identify the rows of each table, with the name of their attempt, and the column that orders them."""


def holds_archived_run(reader: Engine, run_id: int, *, root: Path, run: str) -> bool:
    """Whether a run has every report, notice and batch of an archived run; it may also have newer ones."""
    attempt_names = {
        row["id"]: row["name"]
        for record_batch in table_files.read_table(root, "attempts", run=run)
        for row in ATTEMPTS.from_arrow(record_batch)
    }
    with reader.connect() as connection:
        for name, (table, columns, order) in _IDENTITIES.items():
            archived = _archived_rows(root, name, run=run, columns=columns, attempt_names=attempt_names)
            query = select(tables.attempt.c.name, *(table.c[column] for column in columns)).join_from(
                table, tables.attempt, table.c.attempt_id == tables.attempt.c.id
            )
            query = query.where(table.c.run_id == run_id).order_by(table.c[order])
            with connection.execute(query.execution_options(yield_per=1000)) as rows:
                stored = map(tuple, rows)
                # Both are in the order of their ids: each search continues after the previous match.
                if not all(identity in stored for identity in archived):
                    return False
    return True


def _archived_rows(
    root: Path, table: str, *, run: str, columns: Sequence[str], attempt_names: dict[int, str]
) -> Iterator[tuple[Any, ...]]:
    for record_batch in table_files.read_table(root, table, run=run, columns=["attempt_id", *columns]):
        for row in record_batch.to_pylist():
            yield attempt_names[row["attempt_id"]], *(row[column] for column in columns)
