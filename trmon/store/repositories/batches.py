"""Closed batches and the decisions on them: list and find them."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, Engine, and_, or_, select, true

from trmon.domain.access import Access
from trmon.domain.batches.batch import BatchRow, DecisionRow, PolicyRole
from trmon.domain.identity import BatchKey
from trmon.store.repositories.attempt_places import AttemptPlaces, read_steps
from trmon.store.rows.batches import (
    BatchSelection,
    NameDictionary,
    decision_from_row,
    is_batch,
    read_batches,
    selected_batches,
)
from trmon.store.rows.mapping import Page, decode_cursor, page_of
from trmon.store.rows.runs import visible_runs
from trmon.store.schema import tables
from trmon.store.writing.repository import Reader

_batch, _attempt, _decision = tables.batch.c, tables.attempt.c, tables.decision.c


class Batches(Reader):
    """Reads the batches of runs and the decisions of their policies."""

    def __init__(self, reader: Engine, *, names: NameDictionary, places: AttemptPlaces) -> None:
        super().__init__(reader)
        self._names = names
        self._places = places

    def list(
        self,
        run_id: int,
        *,
        access: Access,
        attempt_id: int | None = None,
        step: int | None = None,
        after: str | None = None,
        limit: int = 100,
        oldest_first: bool = False,
    ) -> Page[BatchRow]:
        """Return a run's batches, newest first unless asked otherwise. Errors: InvalidInput for an invalid cursor."""
        ordinal = None if after is None else decode_cursor(after)
        selection = BatchSelection(
            limit=limit + 1,
            newest_first=not oldest_first,
            step=step,
            after=ordinal if oldest_first else None,
            before=None if oldest_first else ordinal,
        )
        with self._reader.connect() as connection:
            moved = self._places.of_run(connection, run_id, access=access, attempt_id=attempt_id)
            found = select(tables.batch).join(tables.run).where(_batch.run_id == run_id, visible_runs(access))
            found = found.where(*moved.left_out(_batch.attempt_id))
            if attempt_id is not None:
                found = found.where(_batch.attempt_id == attempt_id)
            batches = read_batches(connection, selected_batches(found, selection), names=self._names)
        if moved:
            batches = selection.merged(batches, moved.history.batches(moved.ids, selection))
        return page_of(batches, limit=limit, key=lambda batch: batch.ordinal)

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
        found = select(_attempt.id).join(tables.run).where(_attempt.run_id == run_id, visible_runs(access))
        if attempt_id is not None:
            found = found.where(_attempt.id == attempt_id)
        if before is not None:
            found = found.where(_attempt.id <= before.attempt_id)
        keys: list[BatchKey] = []
        for id_ in self._values(found.order_by(_attempt.id.desc())):
            end = before.step - 1 if before is not None and before.attempt_id == id_ else to_step
            steps = read_steps(self._places, id_, from_step=from_step, to_step=end, limit=limit - len(keys))
            # The whole rollout batch, update None, sorts before every update.
            keys += [BatchKey(id_, one.step, None if one.first is None else one.last) for one in steps]
            if len(keys) == limit:
                break
        return tuple(keys)

    def returned_decisions(self, keys: Collection[BatchKey], *, access: Access) -> dict[BatchKey, DecisionRow]:
        """Return the decision of the active policy by batch; batches without one, or not visible, are left out."""
        found = self._decisions(keys, access=access, where=_decision.role == PolicyRole.ACTIVE.value)
        return {row.key: row for row in found if row.role is PolicyRole.ACTIVE}

    def decisions(self, key: BatchKey, *, access: Access) -> tuple[DecisionRow, ...]:
        """Return the decisions of all policies on a batch, the active one first."""
        found = self._decisions([key], access=access, where=true())
        return tuple(sorted(found, key=lambda row: (row.role.value, row.policy_name, row.policy_hash)))

    def _decisions(
        self, keys: Collection[BatchKey], *, access: Access, where: ColumnElement[bool]
    ) -> tuple[DecisionRow, ...]:
        """Return decisions on some batches: those in the database only where a predicate holds."""
        if not keys:
            return ()
        with self._reader.connect() as connection:
            moved = self._places.among(connection, {key.attempt_id for key in keys}, access=access)
            stored = [key for key in keys if key.attempt_id not in moved.ids]
            decisions: list[DecisionRow] = []
            if stored:
                is_run = tables.run.c.id == _attempt.run_id
                of_run = tables.decision.join(tables.attempt).join(tables.run, is_run)
                wanted = or_(*(and_(*is_batch(tables.decision, key)) for key in stored))
                found = select(tables.decision).select_from(of_run).where(wanted, visible_runs(access), where)
                decisions = [decision_from_row(row) for row in connection.execute(found)]
        if moved:
            decisions += moved.history.decisions([key for key in keys if key.attempt_id in moved.ids])
        return tuple(decisions)
