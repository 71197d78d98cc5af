"""The history of signals, read from chunks and, for the newest batches, from their rows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from sqlalchemy import Connection, Engine, or_, select

from trmon.domain.model.access import Access
from trmon.domain.runs.attempts import Resolution
from trmon.store.repositories.signal_series import SignalSeries, bucket_series, gauge_rows
from trmon.store.rows.name_dictionary import NameDictionary
from trmon.store.rows.run_rows import visible_runs
from trmon.store.rows.signal_chunks import (
    AXES,
    axes_of,
    last_chunked_ordinal,
    read_axes,
    read_signal,
    select_unchunked,
    values_by_signal,
)
from trmon.store.schema import tables

NAMED_BATCHES = 256
"""The signals of a run are those of this many of its newest batches."""


@dataclass(frozen=True, slots=True)
class _StepRange:
    first_step: int
    last_step: int

    def contains(self, step: Any) -> Any:
        return (self.first_step <= step) & (step <= self.last_step)


@dataclass(frozen=True, slots=True)
class _AttemptSeries:
    """The history of one attempt: its axes and values, [batches] each."""

    attempt_id: int
    axes: Any
    values: dict[str, Any]

    def where(self, kept: Any) -> _AttemptSeries:
        if kept.all():
            return self
        return _AttemptSeries(
            self.attempt_id, self.axes[kept], {name: column[kept] for name, column in self.values.items()}
        )


class Signals:
    """Reads the history of a run's signals."""

    def __init__(self, reader: Engine, *, names: NameDictionary) -> None:
        self._reader = reader
        self._names = names

    def names(self, run_id: int, *, access: Access) -> list[str]:
        """Return the names of the signals and scalars in a run's newest batches, sorted."""
        table = tables.batch
        newest = select(table.c.signal_names, table.c.scalar_names).join(tables.run)
        newest = newest.where(table.c.run_id == run_id, visible_runs(access)).order_by(table.c.ordinal.desc())
        with self._reader.connect() as connection:
            rows = connection.execute(newest.limit(NAMED_BATCHES)).all()
            name_sets = self._names.read(connection, {id_ for row in rows for id_ in row})
        return sorted({name for names in name_sets.values() for name in names})

    def recorded_names(self, run_id: int, names: Collection[str], *, access: Access) -> set[str]:
        """Return those of the given names that the run's history has, however old."""
        table = tables.signal_chunk.c
        attempts = select(tables.attempt.c.id).join(tables.run).where(tables.run.c.id == run_id, visible_runs(access))
        recorded = select(table.name).where(table.attempt_id.in_(attempts), table.name.in_(names)).distinct()
        with self._reader.connect() as connection:
            return set(connection.scalars(recorded))

    def series(
        self,
        run_id: int,
        *,
        names: Sequence[str],
        access: Access,
        attempt_id: int | None = None,
        from_step: int | None = None,
        to_step: int | None = None,
        points: int = 1000,
        updates: Literal["gauge", "all"] = "gauge",
    ) -> SignalSeries:
        """Return signals over a range of steps, both ends included, as at most `points` points.

        Without `attempt_id` the history is one line: the steps of a restart replace those it went back over, and the
        attempts of a second trainer are left out. `updates="gauge"` reads the whole rollout batch of each step, else
        its last update; `"all"` reads every batch. A name that no batch has is NaN. Up to `points` batches are exact.
        """
        steps = _StepRange(from_step or 0, 2**62 if to_step is None else to_step)
        with self._reader.connect() as connection:
            attempt_ids = _attempts(connection, run_id, attempt_id, access)
            parts = [self._read_attempt(connection, id_, names=names, steps=steps) for id_ in attempt_ids]
        if updates == "gauge":
            parts = [part.where(gauge_rows(part.axes)) for part in parts]
        parts = _splice(parts)
        return bucket_series(
            np.concatenate([np.empty(0, AXES), *(part.axes for part in parts)]),
            {name: np.concatenate([np.empty(0), *(part.values[name] for part in parts)]) for name in names},
            attempt_id=np.repeat(attempt_ids, [len(part.axes) for part in parts]).astype(np.int64),
            points=points,
        )

    def newest_steps(self, run_id: int, *, access: Access, limit: int) -> list[int]:
        """Return the newest steps of the run's history, newest first; the history is one line as in `series`."""
        table, found = tables.batch.c, list[int]()
        with self._reader.connect() as connection:
            for attempt_id in reversed(_attempts(connection, run_id, None, access)):
                # Only the index of the attempt's batches is read: a long run has many.
                steps = select(table.step).distinct().where(table.attempt_id == attempt_id)
                if found:
                    steps = steps.where(table.step < found[-1])
                found += connection.scalars(steps.order_by(table.step.desc()).limit(limit - len(found)))
                if len(found) == limit:
                    break
        return found

    def _read_attempt(
        self, connection: Connection, attempt_id: int, *, names: Sequence[str], steps: _StepRange
    ) -> _AttemptSeries:
        table = tables.chunk_axes.c
        chunks = select(table.first_ordinal, table.axes).where(
            table.attempt_id == attempt_id, table.first_step <= steps.last_step, table.last_step >= steps.first_step
        )
        axes = {row[0]: read_axes(row[1]) for row in connection.execute(chunks.order_by(table.first_ordinal))}
        rows = connection.execute(select_unchunked(attempt_id, last_chunked_ordinal(connection, attempt_id))).all()
        name_sets = self._names.read(connection, {id_ for row in rows for id_ in (row.signal_names, row.scalar_names)})
        newest = values_by_signal(rows, name_sets)
        columns = _columns(connection, attempt_id, names, axes)
        values = {
            name: np.concatenate([*columns[name], newest.get(name, np.full(len(rows), np.nan))]) for name in names
        }
        part = _AttemptSeries(attempt_id, np.concatenate([*axes.values(), axes_of(rows)]), values)
        return part.where(steps.contains(part.axes["step"]))


def _attempts(connection: Connection, run_id: int, attempt_id: int | None, access: Access) -> list[int]:
    table = tables.attempt
    found = select(table.c.id).join(tables.run).where(table.c.run_id == run_id, visible_runs(access))
    if attempt_id is not None:
        found = found.where(table.c.id == attempt_id)
    else:
        reason = table.c.fork_reason
        found = found.where(or_(reason.is_(None), reason != Resolution.TWO_TRAINERS.value))
    return list(connection.scalars(found.order_by(table.c.ordinal)))


def _columns(
    connection: Connection, attempt_id: int, names: Sequence[str], axes: dict[int, Any]
) -> dict[str, list[Any]]:
    """Return the values of signals by name, one array per chunk, NaN where a chunk lacks a signal."""
    columns = {name: [np.full(len(axis), np.nan) for axis in axes.values()] for name in names}
    if axes and names:
        table = tables.signal_chunk.c
        found = select(table.name, table.first_ordinal, table.data).where(
            table.attempt_id == attempt_id, table.name.in_(names), table.first_ordinal.between(min(axes), max(axes))
        )
        places = {first: place for place, first in enumerate(axes)}
        for name, first, data in connection.execute(found):
            if first in places:
                columns[name][places[first]] = read_signal(data)
    return columns


def _splice(parts: list[_AttemptSeries]) -> list[_AttemptSeries]:
    """Cut each attempt at the first step of the next one."""
    spliced: list[_AttemptSeries] = []
    limit = 2**62
    for part in reversed(parts):
        spliced.insert(0, part.where(part.axes["step"] < limit))
        limit = min([limit, *part.axes["step"][:1].tolist()])
    return spliced
