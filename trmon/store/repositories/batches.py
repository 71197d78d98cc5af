"""Closed batches and the decisions on them: list and find them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import Engine, Select, and_, func, or_, select

from trmon.domain.batches.batch import BatchRow, DecisionRow, PolicyRole
from trmon.domain.model.access import Access
from trmon.domain.model.errors import NotFound
from trmon.domain.model.identity import BatchKey
from trmon.store.repositories.keyset_page import Page, decode_cursor, page_of
from trmon.store.rows.batch_rows import decision_from_row, is_batch, read_batches
from trmon.store.rows.name_dictionary import NameDictionary
from trmon.store.rows.run_rows import visible_runs
from trmon.store.schema import tables


class Batches:
    """Reads the batches of runs and the decisions of their policies."""

    def __init__(self, reader: Engine, *, names: NameDictionary) -> None:
        self._reader = reader
        self._names = names

    def list(
        self,
        run_id: int,
        *,
        access: Access,
        attempt_id: int | None = None,
        step: int | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> Page[BatchRow]:
        """Return a run's batches, newest first. Errors: InvalidInput for an invalid cursor."""
        table = tables.batch
        found = select(table).join(tables.run).where(table.c.run_id == run_id, visible_runs(access))
        if attempt_id is not None:
            found = found.where(table.c.attempt_id == attempt_id)
        if step is not None:
            found = found.where(table.c.step == step)
        if after is not None:
            found = found.where(table.c.ordinal < decode_cursor(after, length=1)[0])
        with self._reader.connect() as connection:
            newest = found.order_by(table.c.ordinal.desc()).limit(limit + 1)
            batches = read_batches(connection, newest, names=self._names)
        return page_of(batches, limit=limit, key=lambda batch: (batch.ordinal,))

    def gauge_keys(
        self,
        run_id: int,
        *,
        access: Access,
        attempt_id: int | None = None,
        from_step: int | None = None,
        to_step: int | None = None,
        before: BatchKey | None = None,
        limit: int = 100,
    ) -> tuple[BatchKey, ...]:
        """Return the key of the batch that gauges show for each of the newest steps in a range, newest first.

        Args: before: only older steps, to continue after the last key of an earlier call.
        """
        attempt = tables.attempt
        found = select(attempt.c.id).join(tables.run).where(attempt.c.run_id == run_id, visible_runs(access))
        if attempt_id is not None:
            found = found.where(attempt.c.id == attempt_id)
        if before is not None:
            found = found.where(attempt.c.id <= before.attempt_id)
        keys: list[BatchKey] = []
        with self._reader.connect() as connection:
            for id_ in connection.scalars(found.order_by(attempt.c.id.desc())).all():
                end = before.step - 1 if before is not None and before.attempt_id == id_ else to_step
                steps = _select_gauge_steps(id_, from_step=from_step, to_step=end).limit(limit - len(keys))
                # The whole rollout batch, update None, sorts before every update.
                rows = connection.execute(steps)
                keys += [BatchKey(id_, row.step, None if row.first is None else row.last) for row in rows]
                if len(keys) == limit:
                    break
        return tuple(keys)

    def get(self, key: BatchKey, *, access: Access) -> BatchRow:
        """Return a batch. Errors: NotFound."""
        found = select(tables.batch).join(tables.run).where(*is_batch(tables.batch, key), visible_runs(access))
        with self._reader.connect() as connection:
            batches = read_batches(connection, found, names=self._names)
        if not batches:
            raise NotFound("batch", f"step {key.step}, update {key.update}, attempt {key.attempt_id}")
        return batches[0]

    def returned_decisions(self, keys: Collection[BatchKey], *, access: Access) -> dict[BatchKey, DecisionRow]:
        """Return the decision of the active policy by batch; batches without one, or not visible, are left out."""
        if not keys:
            return {}
        table = tables.decision
        of_run = table.join(tables.attempt).join(tables.run, tables.run.c.id == tables.attempt.c.run_id)
        wanted = or_(*(and_(*is_batch(table, key)) for key in keys))
        found = (
            select(table)
            .select_from(of_run)
            .where(wanted, table.c.role == PolicyRole.ACTIVE.value, visible_runs(access))
        )
        with self._reader.connect() as connection:
            rows = [decision_from_row(row) for row in connection.execute(found)]
        return {row.key: row for row in rows}

    def decisions(self, key: BatchKey, *, access: Access) -> tuple[DecisionRow, ...]:
        """Return the decisions of all policies on a batch, the active one first."""
        table = tables.decision
        of_run = table.join(tables.attempt).join(tables.run, tables.run.c.id == tables.attempt.c.run_id)
        found = select(table).select_from(of_run).where(*is_batch(table, key), visible_runs(access))
        with self._reader.connect() as connection:
            rows = connection.execute(found.order_by(table.c.role, table.c.policy_name)).all()
        return tuple(decision_from_row(row) for row in rows)


def _select_gauge_steps(attempt_id: int, *, from_step: int | None, to_step: int | None) -> Select[Any]:
    """Return a query for an attempt's steps with their first and last update, newest first; it only reads an index."""
    table = tables.batch.c
    first, last = func.min(table.update_index), func.max(table.update_index)
    found = select(table.step, first.label("first"), last.label("last")).where(table.attempt_id == attempt_id)
    if from_step is not None:
        found = found.where(table.step >= from_step)
    if to_step is not None:
        found = found.where(table.step <= to_step)
    return found.group_by(table.step).order_by(table.step.desc())
