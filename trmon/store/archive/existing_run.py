"""Check whether a run in the database is the run of an archive."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, Executable, Table, select

from trmon.store.archive import table_files
from trmon.store.archive.archived_tables import ATTEMPTS
from trmon.store.schema import tables

Identity = tuple[Any, ...]

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
            with connection.execute(_stored_rows(table, columns, run_id=run_id, order=order)) as rows:
                stored = map(tuple, rows)
                # Both are in the order of their ids: each search continues after the previous match.
                if not all(identity in stored for identity in archived):
                    return False
    return True


def _archived_rows(
    root: Path, table: str, *, run: str, columns: Sequence[str], attempt_names: dict[int, str]
) -> Iterator[Identity]:
    for record_batch in table_files.read_table(root, table, run=run, columns=["attempt_id", *columns]):
        for row in record_batch.to_pylist():
            yield attempt_names[row["attempt_id"]], *(row[column] for column in columns)


def _stored_rows(table: Table, columns: Sequence[str], *, run_id: int, order: str) -> Executable:
    query = select(tables.attempt.c.name, *(table.c[name] for name in columns)).join_from(
        table, tables.attempt, table.c.attempt_id == tables.attempt.c.id
    )
    return query.where(table.c.run_id == run_id).order_by(table.c[order]).execution_options(yield_per=1000)
