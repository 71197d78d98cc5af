"""Delete from the database what the lake holds, and ask the lake to delete runs that are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Table, and_, exists, func, or_, select

from trmon.domain.runs.run import Run
from trmon.store.database.upsert import insert_new
from trmon.store.lake.planning import MOVABLE_STATES
from trmon.store.schema import tables
from trmon.store.writing.group_commit import delete_in_batches
from trmon.store.writing.repository import Repository


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


class MovedRows(Repository):
    """The rows of moved attempts that are still in the database."""

    def delete(self, *, may_continue: Callable[[], bool] = lambda: True) -> int:
        """Delete the rows that the lake holds, and return their number; messages that came since the move stay.

        Args: may_continue: called before each transaction; when it returns False, the remaining rows stay.
        """
        n_deleted = 0
        attempt = tables.attempt.c
        has_rows = or_(
            *(exists().where(table.c.attempt_id == attempt.id, *_up_to_the_move(table)) for table in DELETED_TABLES)
        )
        found = select(attempt.id).where(attempt.lake_batch_id.is_not(None), has_rows)
        attempt_ids = self._values(found.order_by(attempt.id))
        for first in range(0, len(attempt_ids), ATTEMPTS_AT_ONCE):
            for table in DELETED_TABLES:
                page = attempt_ids[first : first + ATTEMPTS_AT_ONCE]
                moved = and_(table.c.attempt_id.in_(page), *_up_to_the_move(table))
                n_deleted += delete_in_batches(self._writer, table, moved, may_continue=may_continue)
        return n_deleted


def waits_for_lake() -> ColumnElement[bool]:
    """Return the predicate that a report is not in the lake, though its run has ended or its attempt has moved."""
    report, attempt = tables.report.c, tables.attempt.c
    is_movable = attempt.lake_batch_id.is_(None) & tables.run.c.state.in_(MOVABLE_STATES)
    is_late = attempt.lake_batch_id.is_not(None) & (report.id > newest_moved(tables.report.c.attempt_id, "report_id"))
    return (
        select(attempt.id)
        .join_from(tables.attempt, tables.run)
        .where(attempt.id == report.attempt_id, or_(is_movable, is_late))
        .correlate(tables.report)
        .exists()
    )


def _up_to_the_move(table: Table) -> list[ColumnElement[bool]]:
    """Return the predicate that excludes messages which came since the move; none for other tables."""
    return [table.c.id <= newest_moved(table.c.attempt_id, f"{table.name}_id")] if table in MESSAGE_TABLES else []


def newest_moved(attempt_id: Column[Any], kind: str) -> ColumnElement[int]:
    """Return the newest id that has moved of an attempt, 0 without one. Args: kind: "report_id" or "notice_id"."""
    member, batch = tables.lake_batch_attempt.c, tables.lake_batch.c
    newest = func.coalesce(func.max(member[kind]), 0)
    of_attempt = select(newest).join_from(tables.lake_batch_attempt, tables.lake_batch)
    moved = of_attempt.where(member.attempt_id == attempt_id, batch.moved_at.is_not(None))
    return moved.correlate(attempt_id.table).scalar_subquery()
