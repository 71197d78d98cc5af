"""Export a project to an archive, run by run, with a few hundred rows in memory at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, func, select

from trmon.domain.batches.batch import BatchRow
from trmon.domain.errors import Conflict, NotFound
from trmon.store import migrations
from trmon.store.archive import arrow_tables, manifest
from trmon.store.archive.arrow_tables import PLAIN_TABLES, REPORTS, ArchivedTable, BatchNames
from trmon.store.archive.manifest import Manifest
from trmon.store.archive.table_files import PIECE_REPORTS, PIECE_ROWS, TableWriter
from trmon.store.rows.batches import NameDictionary, read_batches
from trmon.store.schema import tables


def export_project(reader: Engine, project: str, root: Path, *, names: NameDictionary, now: float) -> Manifest:
    """Write a consistent snapshot of a project into an empty folder.

    Args: now: seconds on the server's clock.
    Errors: NotFound if the project has no run; Conflict if the folder is not empty, or if runs were moved to the lake.
    """
    with reader.connect() as connection:
        query = select(tables.run.c.id, tables.run.c.name).where(tables.run.c.project == project)
        found = connection.execute(query.order_by(tables.run.c.id))
        runs = [(row.id, row.name) for row in found if not row.name.startswith("~")]  # not those being imported
        if not runs:
            raise NotFound("project", project)
        # An archive without the rows that were moved would look complete.
        moved = select(func.count()).select_from(tables.attempt).join(tables.run)
        moved = moved.where(tables.run.c.project == project, tables.attempt.c.lake_batch_id.is_not(None))
        if n_moved := connection.scalars(moved).one():
            raise Conflict(
                f"{n_moved} attempts of {project} were moved to the lake, which an export does not copy; "
                "read them from the lake's tables, which have the same columns"
            )
        manifest.make_archive_folder(root)
        columns = arrow_tables.batch_names(connection, project, names=names)
        rows: Counter[str] = Counter()
        for run_id, name in runs:
            writer_of = partial(TableWriter, root, run=name)
            rows += _export_run(connection, run_id, writer_of=writer_of, columns=columns, names=names)
        revision = migrations.schema_revision(connection)
    result = Manifest(
        revision=revision, project=project, runs=tuple(name for _, name in runs), rows=dict(rows), exported_at=now
    )
    manifest.write_manifest(root, result)
    return result


def _export_run(
    connection: Connection,
    run_id: int,
    *,
    writer_of: Callable[..., TableWriter],
    columns: BatchNames,
    names: NameDictionary,
) -> Counter[str]:
    counts: Counter[str] = Counter()
    for archived in PLAIN_TABLES:
        with writer_of(archived.name, schema=archived.schema) as writer:
            for rows in _read(connection, archived, run_id, n_rows=PIECE_ROWS):
                writer.write(archived.to_arrow([row._asdict() for row in rows]))
        counts[archived.name] = writer.n_rows
    with writer_of(arrow_tables.BATCHES, schema=columns.schema) as writer:
        for batches in _batches(connection, run_id, names):
            writer.write(arrow_tables.batches_to_arrow(batches, columns))
    counts[arrow_tables.BATCHES] = writer.n_rows
    with (
        writer_of(REPORTS.name, schema=arrow_tables.REPORTS_SCHEMA) as report_writer,
        writer_of(arrow_tables.SEQUENCES, schema=arrow_tables.SEQUENCES_SCHEMA) as sequence_writer,
    ):
        for rows in _read(connection, REPORTS, run_id, n_rows=PIECE_REPORTS):
            reports, contents = arrow_tables.reports_to_arrow(rows)
            report_writer.write(reports)
            sequence_writer.write(contents)
    counts[REPORTS.name], counts[arrow_tables.SEQUENCES] = report_writer.n_rows, sequence_writer.n_rows
    return counts


def _read(connection: Connection, archived: ArchivedTable, run_id: int, *, n_rows: int) -> Iterator[Sequence[Any]]:
    return connection.execute(archived.of_run(run_id).execution_options(yield_per=n_rows)).partitions()


def _batches(connection: Connection, run_id: int, names: NameDictionary) -> Iterator[Sequence[BatchRow]]:
    table, last_ordinal = tables.batch.c, 0
    ordered = select(tables.batch).where(table.run_id == run_id).order_by(table.ordinal).limit(PIECE_ROWS)
    while piece := read_batches(connection, ordered.where(table.ordinal > last_ordinal), names=names):
        yield piece
        last_ordinal = piece[-1].ordinal
