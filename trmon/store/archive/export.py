"""Export a project to an archive, run by run, with a few hundred rows in memory at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, func, select

from trmon.domain.errors import Conflict, NotFound
from trmon.store import migrations
from trmon.store.archive import arrow_tables, manifest
from trmon.store.archive.arrow_tables import PLAIN_TABLES, REPORTS, ArchivedTable, BatchNames
from trmon.store.archive.manifest import Manifest
from trmon.store.archive.run_import import is_hidden_name
from trmon.store.archive.table_files import PIECE_REPORTS, PIECE_ROWS, TableWriter
from trmon.store.rows.batches import NameDictionary, read_batches
from trmon.store.schema import tables


def export_project(reader: Engine, project: str, root: Path, *, names: NameDictionary, now: float) -> Manifest:
    """Write a consistent snapshot of a project into an empty folder.

    Args: now: seconds on the server's clock.
    Errors: NotFound if the project has no run; Conflict if the folder is not empty, or if runs were moved to the lake.
    """
    with reader.connect() as connection:
        runs = _runs_of(connection, project)
        _check_complete(connection, project)
        manifest.make_archive_folder(root)
        columns = arrow_tables.batch_names(connection, project, names=names)
        rows: Counter[str] = Counter()
        for run_id, name in runs:
            rows += _RunExport(connection, run_id, name, root=root).write(columns, names)
        revision = migrations.schema_revision(connection)
    result = Manifest(
        revision=revision, project=project, runs=tuple(name for _, name in runs), rows=dict(rows), exported_at=now
    )
    manifest.write_manifest(root, result)
    return result


def _runs_of(connection: Connection, project: str) -> list[tuple[int, str]]:
    query = select(tables.run.c.id, tables.run.c.name).where(tables.run.c.project == project)
    rows = connection.execute(query.order_by(tables.run.c.id))
    runs = [(row.id, row.name) for row in rows if not is_hidden_name(row.name)]
    if not runs:
        raise NotFound("project", project)
    return runs


def _check_complete(connection: Connection, project: str) -> None:
    """Raise Conflict if the database lacks rows of the project: an archive without them would look complete."""
    moved = select(func.count()).select_from(tables.attempt).join(tables.run)
    moved = moved.where(tables.run.c.project == project, tables.attempt.c.lake_batch_id.is_not(None))
    if n_moved := connection.scalars(moved).one():
        raise Conflict(
            f"{n_moved} attempts of {project} were moved to the lake, which an export does not copy; "
            "read them from the lake's tables, which have the same columns"
        )


class _RunExport:
    """Writes the tables of one run."""

    def __init__(self, connection: Connection, run_id: int, name: str, *, root: Path) -> None:
        self._connection = connection
        self._run_id = run_id
        self._name = name
        self._root = root

    def write(self, columns: BatchNames, names: NameDictionary) -> Counter[str]:
        """Write every table and return the number of rows of each."""
        counts = Counter({archived.name: self._write_plain(archived) for archived in PLAIN_TABLES})
        counts[arrow_tables.BATCHES] = self._write_batches(columns, names)
        counts[REPORTS.name], counts[arrow_tables.SEQUENCES] = self._write_reports()
        return counts

    def _write_plain(self, archived: ArchivedTable) -> int:
        with self._writer(archived.name, archived.schema) as writer:
            for rows in self._read(archived, n_rows=PIECE_ROWS):
                writer.write(archived.to_arrow([row._asdict() for row in rows]))
        return writer.n_rows

    def _write_batches(self, columns: BatchNames, names: NameDictionary) -> int:
        table = tables.batch.c
        last_ordinal = 0
        with self._writer(arrow_tables.BATCHES, columns.schema) as writer:
            while True:
                newer = select(tables.batch).where(table.run_id == self._run_id, table.ordinal > last_ordinal)
                piece = read_batches(self._connection, newer.order_by(table.ordinal).limit(PIECE_ROWS), names=names)
                if not piece:
                    return writer.n_rows
                writer.write(arrow_tables.batches_to_arrow(piece, columns))
                last_ordinal = piece[-1].ordinal

    def _write_reports(self) -> tuple[int, int]:
        with ExitStack() as stack:
            report_writer = stack.enter_context(self._writer(REPORTS.name, arrow_tables.REPORTS_SCHEMA))
            sequence_writer = stack.enter_context(self._writer(arrow_tables.SEQUENCES, arrow_tables.SEQUENCES_SCHEMA))
            for rows in self._read(REPORTS, n_rows=PIECE_REPORTS):
                reports, contents = arrow_tables.reports_to_arrow(rows)
                report_writer.write(reports)
                sequence_writer.write(contents)
        return report_writer.n_rows, sequence_writer.n_rows

    def _read(self, archived: ArchivedTable, *, n_rows: int) -> Iterator[Sequence[Any]]:
        query = archived.of_run(self._run_id).execution_options(yield_per=n_rows)
        return self._connection.execute(query).partitions()

    def _writer(self, table: str, schema: Any) -> TableWriter:
        return TableWriter(self._root, table, run=self._name, schema=schema)
