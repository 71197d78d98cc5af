"""The moved attempts of a database, read from its lake as the repositories read the database."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from trmon.domain.batches.batch import BatchRow, DecisionRow
from trmon.domain.errors import LakeUnavailable
from trmon.domain.identity import BatchKey
from trmon.domain.messages import AnyReport
from trmon.store.lake import delta_schema
from trmon.store.lake.delta_schema import LakeTable, batch_from_lake
from trmon.store.lake.reader import AttemptIndex, LakeReader
from trmon.store.lake.row_groups import ColumnFilter
from trmon.store.rows.batches import BatchSelection, StepUpdates, decision_from_row
from trmon.store.rows.messages import stored_report
from trmon.store.rows.signal_chunks import (
    BatchSeries,
    StepRange,
    attempt_series,
    axes_of,
)


class LakeHistory:
    """What moved attempts of a database have in its lake. Errors of every method: LakeUnavailable, Overloaded, Damaged.

    `moved_in` is the lake batch of each attempt: messages that came after the move have a later one, and are not read
    as parts of batches, which were closed without them.
    """

    def __init__(self, lake: LakeReader, *, database_id: str, moved_in: Mapping[int, int], lake_batch: int) -> None:
        self._lake = lake
        self._database_id = database_id
        self._moved_in = moved_in
        self._lake_batch = lake_batch

    def batches(self, attempt_ids: Collection[int], selection: BatchSelection) -> list[BatchRow]:
        """Return batches of some attempts in the order of the selection."""
        return selection.merged(*(self._batches_of(attempt_id, selection) for attempt_id in attempt_ids))

    def steps(self, attempt_id: int, *, from_step: int | None, to_step: int | None, limit: int) -> list[StepUpdates]:
        """Return the newest steps of an attempt, newest first."""
        return self._index(attempt_id).newest_steps(from_step=from_step, to_step=to_step, limit=limit)

    def decisions(self, keys: Collection[BatchKey]) -> list[DecisionRow]:
        """Return the decisions on some batches, in no order."""
        wanted, steps = set(keys), ColumnFilter.any_of("step", {key.step for key in keys})
        rows = self._rows(delta_schema.LAKE_DECISIONS, {key.attempt_id for key in keys}, steps)
        return [decision for decision in map(decision_from_row, rows) if decision.key in wanted]

    def reports(self, key: BatchKey) -> list[AnyReport]:
        """Return the reports of a batch in the order (rank, chunk)."""
        rows = self._rows(delta_schema.LAKE_REPORTS, [key.attempt_id], ColumnFilter.equal("step", key.step))
        rows = [row for row in rows if row.update_index == key.update]
        return [stored_report(row) for row in sorted(rows, key=lambda row: (row.rank, row.chunk))]

    def recorded_names(self, attempt_ids: Collection[int], names: Collection[str] | None) -> set[str]:
        """Return those of the names that the columnar history has; without names, all that it has."""
        if names is not None and not names:
            return set()
        named = () if names is None else (ColumnFilter.any_of("name", names),)
        found = self._read(delta_schema.LAKE_SIGNAL_CHUNKS, ["name"], attempt_ids, *named)
        return set(found.column("name").to_pylist())

    def series(self, attempt_id: int, *, names: Sequence[str], steps: StepRange) -> BatchSeries:
        """Return the history of an attempt's signals over a range of steps."""
        columns = ["first_ordinal", "last_ordinal", "first_step", "last_step", "axes"]
        chunks = self._read(delta_schema.LAKE_CHUNK_AXES, columns, [attempt_id]).sort_by("first_ordinal").to_pylist()
        axes = {
            chunk["first_ordinal"]: chunk["axes"]
            for chunk in chunks
            if chunk["first_step"] <= steps.last_step and chunk["last_step"] >= steps.first_step
        }
        chunked_to = max((chunk["last_ordinal"] for chunk in chunks), default=0)
        newest = self._batches_of(attempt_id, BatchSelection(after=chunked_to, limit=sys.maxsize))
        newest_axes = axes_of((batch.key.step, batch.key.update, batch.ordinal, batch.closed_at) for batch in newest)
        # A signal replaces a scalar of the same name.
        values = [batch.scalars | batch.signals for batch in newest]
        return attempt_series(
            names=names,
            steps=steps,
            chunks=(axes, self._values(attempt_id, names, axes) if axes and names else ()),
            newest=BatchSeries(
                newest_axes, {name: np.array([row.get(name, np.nan) for row in values]) for name in names}
            ),
        )

    def _values(
        self, attempt_id: int, names: Sequence[str], ordinals: Collection[int]
    ) -> Iterator[tuple[str, int, bytes]]:
        columns = ["name", "first_ordinal", "data"]
        named = ColumnFilter.any_of("name", names)
        within = ColumnFilter("first_ordinal", min(ordinals), max(ordinals))
        found = self._read(delta_schema.LAKE_SIGNAL_CHUNKS, columns, [attempt_id], named, within)
        yield from zip(*(found.column(name).to_pylist() for name in columns), strict=True)

    def _batches_of(self, attempt_id: int, selection: BatchSelection) -> list[BatchRow]:
        index = self._index(attempt_id)
        chosen = index.selected(selection)
        if not len(chosen):
            return []
        steps, ordinals = index.steps[chosen], set(index.ordinals[chosen].tolist())
        within = ColumnFilter("step", int(steps.min()), int(steps.max()))
        table = delta_schema.LAKE_BATCHES
        columns = ["run_id", "attempt_id", *(field.name for field in table.fields)]
        found = self._read(table, columns, [attempt_id], within, ColumnFilter.any_of("ordinal", ordinals))
        return [batch_from_lake(row) for row in found.to_pylist()]

    def _index(self, attempt_id: int) -> AttemptIndex:
        return self._lake.index((self._database_id, attempt_id, self._lake_batch), lambda: self._read_index(attempt_id))

    def _read_index(self, attempt_id: int) -> AttemptIndex:
        keys = self._read(delta_schema.LAKE_BATCHES, ["step", "update_index", "ordinal"], [attempt_id])
        if not len(keys) and not len(self._read(delta_schema.LAKE_ATTEMPTS, ["attempt_id"], [attempt_id])):
            raise LakeUnavailable(
                f"the lake lacks attempt {attempt_id}, which was moved to it; set TRMON_LAKE_URL to the lake of this "
                "database"
            )
        return AttemptIndex.of(
            steps=keys.column("step").to_numpy(),
            updates=keys.column("update_index").fill_null(-1).to_numpy(),
            ordinals=keys.column("ordinal").to_numpy(),
        )

    def _rows(self, table: LakeTable, attempt_ids: Collection[int], *filters: ColumnFilter) -> list[Any]:
        """Return rows that are stored unchanged, with the columns of the database as attributes."""
        assert table.archived is not None
        found = self._read(table, [*table.archived.schema.names, "run_id"], attempt_ids, *filters)
        run_ids = found.column("run_id").to_pylist()
        rows = (row for record_batch in found.to_batches() for row in table.archived.from_arrow(record_batch))
        return [SimpleNamespace(**row, run_id=run_id) for row, run_id in zip(rows, run_ids, strict=True)]

    def _read(
        self, table: LakeTable, columns: Sequence[str], attempt_ids: Collection[int], *filters: ColumnFilter
    ) -> Any:
        """Return the rows of some attempts that moved with them, as an Arrow table."""
        where = (
            ColumnFilter.any_of("attempt_id", attempt_ids),
            ColumnFilter.any_of("lake_batch_id", {self._moved_in[attempt_id] for attempt_id in attempt_ids}),
            ColumnFilter.equal("database_id", self._database_id),
            *filters,
        )
        return self._lake.read(table, columns, where, lake_batch=self._lake_batch)
