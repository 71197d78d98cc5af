"""Runs that were deleted from the database and are still to be deleted from the lake."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Engine, exists, select, update

from trmon.domain.runs.run import Run
from trmon.store.database.upsert import insert_new
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit

_deletion = tables.lake_deletion.c


class LakeDeletions:
    """The deletions that the mover carries out."""

    def __init__(self, reader: Engine, writer: GroupCommit) -> None:
        self._reader = reader
        self._writer = writer

    def pending(self) -> Sequence[int]:
        """Return the ids of the runs that the lake may still have."""
        found = select(_deletion.run_id).where(_deletion.deleted_at.is_(None)).order_by(_deletion.run_id)
        with self._reader.connect() as connection:
            return connection.scalars(found).all()

    def finish(self, run_ids: Sequence[int], *, now: float) -> None:
        """Record that the lake has these runs no more."""
        done = update(tables.lake_deletion).where(_deletion.run_id.in_(run_ids)).values(deleted_at=now)
        self._writer.submit(lambda transaction: transaction.connection.execute(done)).result()


def ask_for_deletion(connection: Connection, run: Run, *, now: float) -> None:
    """Record that a run is to be deleted from the lake, if any of its attempts has moved or is moving."""
    moved = exists().where(tables.lake_batch_attempt.c.run_id == run.id)
    if connection.scalar(select(moved)):
        row = {"run_id": run.id, "project": run.key.project, "asked_at": now, "deleted_at": None}
        insert_new(connection, tables.lake_deletion, rows=[row])
