"""Writing a project's archive, run by run, a few hundred rows in memory at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, select

from trmon.domain.model.errors import NotFound
from trmon.store import migrations
from trmon.store.archive import batches, manifest, sequences
from trmon.store.archive.archived_tables import PLAIN, REPORTS, ArchivedTable
from trmon.store.archive.batches import BatchNames
from trmon.store.archive.manifest import Manifest
from trmon.store.archive.run_import import is_hidden_name
from trmon.store.archive.table_files import PIECE_REPORTS, PIECE_ROWS, TableWriter
from trmon.store.rows.batch_rows import read_batches
from trmon.store.rows.name_dictionary import NameDictionary
from trmon.store.schema import tables


def export_project(reader: Engine, project: str, root: Path, *, names: NameDictionary, now: float) -> Manifest:
    """Write a project's archive into an empty folder, all of it as it was at one moment.

    Args: now: seconds on the server's clock.
    Errors: NotFound without a run; Conflict when the folder is not empty.
    """
    with reader.connect() as connection:
        found = select(tables.run.c.id, tables.run.c.name).where(tables.run.c.project == project)
        known = connection.execute(found.order_by(tables.run.c.id))
        runs = [(row.id, row.name) for row in known if not is_hidden_name(row.name)]
        if not runs:
            raise NotFound("project", project)
        manifest.make_archive_folder(root)
        words = batches.batch_names(connection, project, names=names)
        rows: Counter[str] = Counter()
        for run_id, name in runs:
            rows += _Run(connection, run_id, name, root=root).written(words, names)
        revision = migrations.schema_revision(connection)
    written = Manifest(
        revision=revision, project=project, runs=tuple(name for _, name in runs), rows=dict(rows), exported_at=now
    )
    manifest.write_manifest(root, written)
    return written


class _Run:
    """One run on its way into an archive."""

    def __init__(self, connection: Connection, run_id: int, name: str, *, root: Path) -> None:
        self._connection = connection
        self._run_id = run_id
        self._name = name
        self._root = root

    def written(self, vocabulary: BatchNames, names: NameDictionary) -> Counter[str]:
        """Write every table and return how many rows each has."""
        counts = Counter({kept.name: self._plain(kept) for kept in PLAIN})
        counts[batches.NAME] = self._batches(vocabulary, names)
        counts[REPORTS.name], counts[sequences.NAME] = self._reports()
        return counts

    def _plain(self, kept: ArchivedTable) -> int:
        with self._parts(kept.name, kept.schema) as parts:
            for rows in self._rows(kept, n_rows=PIECE_ROWS):
                parts.write(kept.written([row._asdict() for row in rows]))
        return parts.n_rows

    def _batches(self, vocabulary: BatchNames, names: NameDictionary) -> int:
        table = tables.batch.c
        last_ordinal = 0
        with self._parts(batches.NAME, vocabulary.schema) as parts:
            while True:
                newer = select(tables.batch).where(table.run_id == self._run_id, table.ordinal > last_ordinal)
                found = read_batches(self._connection, newer.order_by(table.ordinal).limit(PIECE_ROWS), names=names)
                if not found:
                    return parts.n_rows
                parts.write(batches.batches_to_arrow(found, vocabulary))
                last_ordinal = found[-1].ordinal

    def _reports(self) -> tuple[int, int]:
        with ExitStack() as stack:
            reports = stack.enter_context(self._parts(REPORTS.name, sequences.REPORTS_SCHEMA))
            inside = stack.enter_context(self._parts(sequences.NAME, sequences.SCHEMA))
            for rows in self._rows(REPORTS, n_rows=PIECE_REPORTS):
                for parts, batch in zip((reports, inside), sequences.reports_to_arrow(rows), strict=True):
                    parts.write(batch)
        return reports.n_rows, inside.n_rows

    def _rows(self, kept: ArchivedTable, *, n_rows: int) -> Iterator[Sequence[Any]]:
        found = kept.of_run(self._run_id).execution_options(yield_per=n_rows)
        return self._connection.execute(found).partitions()

    def _parts(self, table: str, schema_: Any) -> TableWriter:
        return TableWriter(self._root, table, run=self._name, schema=schema_)
