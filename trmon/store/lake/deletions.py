"""Delete from the database what the lake holds, and ask the lake to delete runs that are gone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import ColumnElement, Connection, Engine, Table, and_, exists, func, or_, select, update

from trmon.domain.runs.run import Run
from trmon.store.database.upsert import insert_new
from trmon.store.lake.planning import MOVABLE_STATES
from trmon.store.schema import tables
from trmon.store.writing.group_commit import GroupCommit, delete_in_batches

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


ATTEMPTS_AT_ONCE = 100
MESSAGE_TABLES = (tables.report, tables.notice)
DELETED_TABLES = (*MESSAGE_TABLES, tables.decision, tables.signal_chunk, tables.chunk_axes, tables.batch)
"""The large tables. The others of a run stay, a few kilobytes: the fleet, the alerts and the audits read them."""


class MovedRows:
    """The rows of moved attempts that are still in the database."""

    def __init__(self, reader: Engine, writer: GroupCommit) -> None:
        self._reader = reader
        self._writer = writer

    def delete(self, *, may_continue: Callable[[], bool] = lambda: True) -> int:
        """Delete the rows that the lake holds, and return their number; messages that came since the move stay.

        Args: may_continue: called before each transaction; when it returns False, the remaining rows stay.
        """
        n_deleted = 0
        attempt_ids = self._attempts()
        for first in range(0, len(attempt_ids), ATTEMPTS_AT_ONCE):
            for table in DELETED_TABLES:
                moved = _is_moved(table, attempt_ids[first : first + ATTEMPTS_AT_ONCE])
                n_deleted += delete_in_batches(self._writer, table, moved, may_continue=may_continue)
        return n_deleted

    def _attempts(self) -> Sequence[int]:
        """Return the moved attempts that have rows of theirs in the database."""
        attempt = tables.attempt.c
        has_rows = or_(
            *(exists().where(table.c.attempt_id == attempt.id, *_up_to_the_move(table)) for table in DELETED_TABLES)
        )
        found = select(attempt.id).where(attempt.lake_batch_id.is_not(None), has_rows)
        with self._reader.connect() as connection:
            return connection.scalars(found.order_by(attempt.id)).all()


def waits_for_lake() -> ColumnElement[bool]:
    """Return the predicate that a report is not in the lake, though its run has ended or its attempt has moved."""
    report, attempt = tables.report.c, tables.attempt.c
    is_movable = attempt.lake_batch_id.is_(None) & tables.run.c.state.in_(MOVABLE_STATES)
    is_late = attempt.lake_batch_id.is_not(None) & (report.id > _newest_moved(tables.report))
    return (
        select(attempt.id)
        .join_from(tables.attempt, tables.run)
        .where(attempt.id == report.attempt_id, or_(is_movable, is_late))
        .correlate(tables.report)
        .exists()
    )


def _is_moved(table: Table, attempt_ids: Sequence[int]) -> ColumnElement[bool]:
    return and_(table.c.attempt_id.in_(attempt_ids), *_up_to_the_move(table))


def _up_to_the_move(table: Table) -> list[ColumnElement[bool]]:
    """Return the predicate that excludes messages which came since the move; none for other tables."""
    return [table.c.id <= _newest_moved(table)] if table in MESSAGE_TABLES else []


def _newest_moved(table: Table) -> ColumnElement[int]:
    member, batch = tables.lake_batch_attempt.c, tables.lake_batch.c
    newest = func.coalesce(func.max(member[f"{table.name}_id"]), 0)
    of_attempt = select(newest).join_from(tables.lake_batch_attempt, tables.lake_batch)
    moved = of_attempt.where(member.attempt_id == table.c.attempt_id, batch.moved_at.is_not(None))
    return moved.correlate(table).scalar_subquery()
