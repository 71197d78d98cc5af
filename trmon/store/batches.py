"""Closed batches and what was decided over them, for readers."""

from __future__ import annotations

from sqlalchemy import Engine, select

from trmon.domain.access import Access
from trmon.domain.batch import BatchRow, DecisionRow
from trmon.domain.errors import NotFound
from trmon.domain.identity import BatchKey
from trmon.store import schema
from trmon.store.batchrows import decision_of, is_batch, read_batches
from trmon.store.namesets import NameSets
from trmon.store.page import Page, decode, page
from trmon.store.runrows import visible


class Batches:
    """The batches of runs, and the decisions of their policies."""

    def __init__(self, reader: Engine, *, names: NameSets) -> None:
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
        """Return a run's batches, newest first. Errors: InvalidInput for a cursor that is none."""
        table = schema.batch
        found = select(table).join(schema.run).where(table.c.run_id == run_id, visible(access))
        if attempt_id is not None:
            found = found.where(table.c.attempt_id == attempt_id)
        if step is not None:
            found = found.where(table.c.step == step)
        if after is not None:
            found = found.where(table.c.ordinal < decode(after, length=1)[0])
        with self._reader.connect() as connection:
            newest = found.order_by(table.c.ordinal.desc()).limit(limit + 1)
            batches = read_batches(connection, newest, names=self._names)
        return page(batches, limit=limit, key=lambda batch: (batch.ordinal,))

    def get(self, key: BatchKey, *, access: Access) -> BatchRow:
        """Return a batch. Errors: NotFound."""
        found = select(schema.batch).join(schema.run).where(*is_batch(schema.batch, key), visible(access))
        with self._reader.connect() as connection:
            batches = read_batches(connection, found, names=self._names)
        if not batches:
            raise NotFound("batch", f"step {key.step}, update {key.update}, attempt {key.attempt_id}")
        return batches[0]

    def decisions(self, key: BatchKey, *, access: Access) -> tuple[DecisionRow, ...]:
        """Return what each policy decided over a batch, the active one first."""
        table = schema.decision
        of_run = table.join(schema.attempt).join(schema.run, schema.run.c.id == schema.attempt.c.run_id)
        found = select(table).select_from(of_run).where(*is_batch(table, key), visible(access))
        with self._reader.connect() as connection:
            rows = connection.execute(found.order_by(table.c.role, table.c.policy_name)).all()
        return tuple(decision_of(row) for row in rows)
