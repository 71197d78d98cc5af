"""The steps of an attempt with their updates, newest first."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Select, func, select

from trmon.store.repositories.attempt_places import AttemptPlaces
from trmon.store.rows.batch_selection import StepUpdates
from trmon.store.schema import tables


def read_steps(
    places: AttemptPlaces, attempt_id: int, *, from_step: int | None = None, to_step: int | None = None, limit: int
) -> list[StepUpdates]:
    """Return the newest steps of an attempt in a range, both ends included, newest first."""

    def stored(connection: Connection) -> list[StepUpdates]:
        steps = _select_steps(attempt_id, from_step=from_step, to_step=to_step).limit(limit)
        return [StepUpdates(row.step, row.first, row.last) for row in connection.execute(steps)]

    return places.read(
        attempt_id,
        stored=stored,
        moved=lambda lake: lake.steps(attempt_id, from_step=from_step, to_step=to_step, limit=limit),
    )


def _select_steps(attempt_id: int, *, from_step: int | None, to_step: int | None) -> Select[Any]:
    """Return a query for an attempt's steps with their first and last update, newest first; it only reads an index."""
    table = tables.batch.c
    first, last = func.min(table.update_index), func.max(table.update_index)
    found = select(table.step, first.label("first"), last.label("last")).where(table.attempt_id == attempt_id)
    if from_step is not None:
        found = found.where(table.step >= from_step)
    if to_step is not None:
        found = found.where(table.step <= to_step)
    return found.group_by(table.step).order_by(table.step.desc())
