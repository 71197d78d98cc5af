"""Whether a run that stands already is the one of an archive."""

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
"""What tells the rows of each table apart, beside the name of their attempt, and the order in which they came."""


def holds_archived_run(reader: Engine, run_id: int, *, root: Path, run: str) -> bool:
    """Whether a run has every report, notice and batch of an archive's; it may have gone on since."""
    names = {
        row["id"]: row["name"]
        for batch in table_files.read_table(root, "attempts", run=run)
        for row in ATTEMPTS.read(batch)
    }
    with reader.connect() as connection:
        for table, (stored, columns, order) in _IDENTITIES.items():
            wanted = _archived(root, table, run=run, columns=columns, names=names)
            with connection.execute(_identities(stored, columns, run_id=run_id, order=order)) as found:
                others = map(tuple, found)
                # Both are in the order in which they came: each search goes on where the last one ended.
                if not all(identity in others for identity in wanted):
                    return False
    return True


def _archived(root: Path, table: str, *, run: str, columns: Sequence[str], names: dict[int, str]) -> Iterator[Identity]:
    for batch in table_files.read_table(root, table, run=run, columns=["attempt_id", *columns]):
        for row in batch.to_pylist():
            yield names[row["attempt_id"]], *(row[column] for column in columns)


def _identities(stored: Table, columns: Sequence[str], *, run_id: int, order: str) -> Executable:
    found = select(tables.attempt.c.name, *(stored.c[name] for name in columns)).join_from(
        stored, tables.attempt, stored.c.attempt_id == tables.attempt.c.id
    )
    return found.where(stored.c.run_id == run_id).order_by(stored.c[order]).execution_options(yield_per=1000)
