"""The history of signals: columns from chunks, and the newest batches from their rows."""

from __future__ import annotations

from collections.abc import Sequence
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
    tail_of,
    values_by_signal,
)
from trmon.store.schema import tables

NAMED_BATCHES = 256
"""How many of the newest batches say which signals a run has."""


@dataclass(frozen=True, slots=True)
class _Window:
    first_step: int
    last_step: int

    def holds(self, step: Any) -> Any:
        return (self.first_step <= step) & (step <= self.last_step)


@dataclass(frozen=True, slots=True)
class _Strand:
    """One attempt's part of a history: its axes and values, [batches] each."""

    attempt_id: int
    axes: Any
    values: dict[str, Any]

    def where(self, kept: Any) -> _Strand:
        if kept.all():
            return self
        return _Strand(self.attempt_id, self.axes[kept], {name: column[kept] for name, column in self.values.items()})


class Signals:
    """What became of every signal of a run since it began."""

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
            sets = self._names.read(connection, {id_ for row in rows for id_ in row})
        return sorted({name for names in sets.values() for name in names})

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
        """Return signals over the steps asked for, both ends included, as at most `points` points.

        Without an attempt, the history is one line: what a restart trained again replaces what it went back over, and
        a second trainer's attempts are left out. `updates` gauge reads each step's whole rollout batch, else its last
        update; all reads every batch. A name that no batch has is NaN throughout; so many points as batches are exact.
        """
        window = _Window(from_step or 0, 2**62 if to_step is None else to_step)
        with self._reader.connect() as connection:
            attempt_ids = _attempts(connection, run_id, attempt_id, access)
            strands = [self._strand(connection, id_, names=names, window=window) for id_ in attempt_ids]
        if updates == "gauge":
            strands = [strand.where(gauge_rows(strand.axes)) for strand in strands]
        strands = _spliced(strands)
        return bucket_series(
            np.concatenate([np.empty(0, AXES), *(strand.axes for strand in strands)]),
            {name: np.concatenate([np.empty(0), *(strand.values[name] for strand in strands)]) for name in names},
            attempt_id=np.repeat(attempt_ids, [len(strand.axes) for strand in strands]).astype(np.int64),
            points=points,
        )

    def newest_steps(self, run_id: int, *, access: Access, limit: int) -> list[int]:
        """Return the newest steps of the run's history, newest first; it is one line, as of `series`."""
        table, found = tables.batch.c, list[int]()
        with self._reader.connect() as connection:
            for attempt_id in reversed(_attempts(connection, run_id, None, access)):
                # Read from the index of an attempt's batches alone: of a long run there are many.
                steps = select(table.step).distinct().where(table.attempt_id == attempt_id)
                if found:
                    steps = steps.where(table.step < found[-1])
                found += connection.scalars(steps.order_by(table.step.desc()).limit(limit - len(found)))
                if len(found) == limit:
                    break
        return found

    def _strand(self, connection: Connection, attempt_id: int, *, names: Sequence[str], window: _Window) -> _Strand:
        table = tables.chunk_axes.c
        chunks = select(table.first_ordinal, table.axes).where(
            table.attempt_id == attempt_id, table.first_step <= window.last_step, table.last_step >= window.first_step
        )
        axes = {row[0]: read_axes(row[1]) for row in connection.execute(chunks.order_by(table.first_ordinal))}
        rows = connection.execute(tail_of(attempt_id, last_chunked_ordinal(connection, attempt_id))).all()
        sets = self._names.read(connection, {id_ for row in rows for id_ in (row.signal_names, row.scalar_names)})
        newest = values_by_signal(rows, sets)
        columns = _columns(connection, attempt_id, names, axes)
        values = {
            name: np.concatenate([*columns[name], newest.get(name, np.full(len(rows), np.nan))]) for name in names
        }
        strand = _Strand(attempt_id, np.concatenate([*axes.values(), axes_of(rows)]), values)
        return strand.where(window.holds(strand.axes["step"]))


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
    """Return signals' values in the chunks whose axes are given, a list by name, NaN where a chunk lacks one."""
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


def _spliced(strands: list[_Strand]) -> list[_Strand]:
    """Cut each attempt where a later one begins."""
    spliced: list[_Strand] = []
    limit = 2**62
    for strand in reversed(strands):
        spliced.insert(0, strand.where(strand.axes["step"] < limit))
        limit = min([limit, *strand.axes["step"][:1].tolist()])
    return spliced
