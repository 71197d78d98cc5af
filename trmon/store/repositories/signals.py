"""The history of signals as points, read from chunks and, for the newest batches, from their rows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from sqlalchemy import Connection, Engine, func, or_, select

from trmon.domain.access import Access
from trmon.domain.runs.attempts import Resolution
from trmon.store.repositories.attempt_places import AttemptPlaces, read_steps
from trmon.store.rows.batches import BatchSelection, NameDictionary
from trmon.store.rows.runs import visible_runs
from trmon.store.rows.signal_chunks import (
    AXES,
    BatchSeries,
    StepRange,
    StoredChunks,
    attempt_series,
    axes_of,
    last_chunked_ordinals,
    select_unchunked,
    values_by_signal,
)
from trmon.store.schema import tables
from trmon.store.writing.repository import Reader
from trmon_client.api.signals import SignalBand, SignalSeries


def bucket_series(axes: Any, values: Mapping[str, Any], *, attempt_id: Any, points: int) -> SignalSeries:
    """Return batches as at most `points` points with equal counts.

    Args: axes: [batches] with fields step, update, closed_at; values: float64 [batches] by name; attempt_id: [batches].
    """
    n = len(axes)
    exact = n <= points
    edges = np.arange(n + 1) if exact else np.linspace(0, n, points + 1).astype(np.int64)
    last = edges[1:] - 1
    return SignalSeries(
        exact=exact,
        attempt_id=attempt_id[last],
        step=axes["step"][last],
        update=axes["update"][last],
        closed_at=axes["closed_at"][last],
        count=np.diff(edges),
        bands={
            name: SignalBand(min=column, max=column, mean=column, last=column) if exact else _band(column, edges[:-1])
            for name, column in values.items()
        },
    )


def _band(column: Any, starts: Any) -> SignalBand:
    known = ~np.isnan(column)
    counts = np.add.reduceat(known, starts, dtype=np.int64)
    some = counts > 0
    last = np.append(starts[1:], len(column)) - 1
    with np.errstate(invalid="ignore"):
        sums = np.add.reduceat(np.where(known, column, 0.0), starts)
        return SignalBand(
            min=np.where(some, np.minimum.reduceat(np.where(known, column, np.inf), starts), np.nan),
            max=np.where(some, np.maximum.reduceat(np.where(known, column, -np.inf), starts), np.nan),
            mean=np.where(some, sums / np.maximum(counts, 1), np.nan),
            last=column[last],
        )


def gauge_rows(axes: Any) -> Any:
    """Return the batches that gauges show, bool [batches]: each step's whole rollout batch, else its last update."""
    chosen = np.zeros(len(axes), bool)
    if not len(axes):
        return chosen
    order = np.lexsort((axes["update"], axes["step"]))
    step, update = axes["step"][order], axes["update"][order]
    first = np.append(True, step[1:] != step[:-1])
    last = np.append(first[1:], True)
    whole = (update == -1)[np.flatnonzero(first)]
    chosen[order] = np.where(np.repeat(whole, np.diff(np.append(np.flatnonzero(first), len(axes)))), first, last)
    return chosen


_batch, _attempt, _notice = tables.batch.c, tables.attempt.c, tables.notice.c
_chunk, _axes = tables.signal_chunk.c, tables.chunk_axes.c
NAMED_BATCHES = 256
"""The signals of a run are those of this many of its newest batches."""


class Signals(Reader):
    """Reads the history of a run's signals."""

    def __init__(self, reader: Engine, *, names: NameDictionary, places: AttemptPlaces) -> None:
        super().__init__(reader)
        self._names = names
        self._places = places

    def names(self, run_id: int, *, access: Access) -> list[str]:
        """Return the names of the signals and scalars in a run's newest batches, sorted."""
        with self._reader.connect() as connection:
            moved = self._places.of_run(connection, run_id, access=access)
            newest = select(_batch.ordinal, _batch.signal_names, _batch.scalar_names).join(tables.run)
            newest = newest.where(_batch.run_id == run_id, visible_runs(access), *moved.left_out(_batch.attempt_id))
            rows = connection.execute(newest.order_by(_batch.ordinal.desc()).limit(NAMED_BATCHES)).all()
            name_sets = self._names.read(connection, {id_ for row in rows for id_ in row[1:]})
        named = [(row.ordinal, (*name_sets[row.signal_names], *name_sets[row.scalar_names])) for row in rows]
        if moved:
            in_lake = moved.history.batches(moved.ids, BatchSelection(newest_first=True, limit=NAMED_BATCHES))
            named += [(batch.ordinal, (*batch.signals, *batch.scalars)) for batch in in_lake]
            named = sorted(named, reverse=True)[:NAMED_BATCHES]
        return sorted({name for _, names in named for name in names})

    def recorded_names(self, run_id: int, names: Collection[str] | None = None, *, access: Access) -> set[str]:
        """Return those of the given names that the run's history has, however old; without names, all of it."""
        attempts = select(_attempt.id).join(tables.run).where(tables.run.c.id == run_id, visible_runs(access))
        recorded = select(_chunk.name).where(_chunk.attempt_id.in_(attempts)).distinct()
        if names is not None:
            recorded = recorded.where(_chunk.name.in_(names))
        with self._reader.connect() as connection:
            moved = self._places.of_run(connection, run_id, access=access)
            found = set(connection.scalars(recorded.where(*moved.left_out(_chunk.attempt_id))))
        return found | moved.history.recorded_names(moved.ids, names) if moved else found

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
        steps = StepRange(from_step or 0, 2**62 if to_step is None else to_step)
        attempt_ids = self._attempts(run_id, attempt_id, access)
        parts = [self._read_attempt(id_, names=names, steps=steps) for id_ in attempt_ids]
        if updates == "gauge":
            parts = [part.where(gauge_rows(part.axes)) for part in parts]
        # Each attempt is cut at the first step of the next one.
        spliced: list[BatchSeries] = []
        limit = 2**62
        for part in reversed(parts):
            spliced.insert(0, part.where(part.axes["step"] < limit))
            limit = min([limit, *part.axes["step"][:1].tolist()])
        return bucket_series(
            np.concatenate([np.empty(0, AXES), *(part.axes for part in spliced)]),
            {name: np.concatenate([np.empty(0), *(part.values[name] for part in spliced)]) for name in names},
            attempt_id=np.repeat(attempt_ids, [len(part.axes) for part in spliced]).astype(np.int64),
            points=points,
        )

    def launches(self, run_id: int, *, access: Access, attempt_id: int | None = None) -> list[float]:
        """Return when each launch of a run's trainer started, as far as its notices are stored, in order."""
        is_start = (_notice.run_id == run_id) & (_notice.kind == "start") & (_notice.rank == 0)
        found = (
            select(func.min(_notice.received_at))
            .join_from(tables.notice, tables.run)
            .where(is_start, visible_runs(access))
        )
        found = found if attempt_id is None else found.where(_notice.attempt_id == attempt_id)
        return sorted(self._values(found.group_by(_notice.attempt_id, _notice.launch)))

    def newest_steps(self, run_id: int, *, access: Access, limit: int) -> list[int]:
        """Return the newest steps of the run's history, newest first; the history is one line as in `series`."""
        found: list[int] = []
        for attempt_id in reversed(self._attempts(run_id, None, access)):
            older = found[-1] - 1 if found else None
            # Only the index of the attempt's batches is read: a long run has many.
            steps = read_steps(self._places, attempt_id, to_step=older, limit=limit - len(found))
            found += [one.step for one in steps]
            if len(found) == limit:
                break
        return found

    def _attempts(self, run_id: int, attempt_id: int | None, access: Access) -> list[int]:
        found = select(_attempt.id).join(tables.run).where(_attempt.run_id == run_id, visible_runs(access))
        if attempt_id is not None:
            found = found.where(_attempt.id == attempt_id)
        else:
            reason = _attempt.fork_reason
            found = found.where(or_(reason.is_(None), reason != Resolution.TWO_TRAINERS.value))
        return list(self._values(found.order_by(_attempt.ordinal)))

    def _read_attempt(self, attempt_id: int, *, names: Sequence[str], steps: StepRange) -> BatchSeries:
        return self._places.read(
            attempt_id,
            stored=lambda connection: attempt_series(
                names=names,
                steps=steps,
                chunks=_chunks(connection, attempt_id, names=names, steps=steps),
                newest=self._newest(connection, attempt_id),
            ),
            moved=lambda lake: lake.series(attempt_id, names=names, steps=steps),
        )

    def _newest(self, connection: Connection, attempt_id: int) -> BatchSeries:
        chunked_to = last_chunked_ordinals(connection, [attempt_id])[attempt_id]
        rows = connection.execute(select_unchunked(attempt_id, chunked_to)).all()
        name_sets = self._names.read(connection, {id_ for row in rows for id_ in (row.signal_names, row.scalar_names)})
        return BatchSeries(axes_of(row[:4] for row in rows), values_by_signal(rows, name_sets))


def _chunks(connection: Connection, attempt_id: int, *, names: Sequence[str], steps: StepRange) -> StoredChunks:
    found = select(_axes.first_ordinal, _axes.axes).where(
        _axes.attempt_id == attempt_id, _axes.first_step <= steps.last_step, _axes.last_step >= steps.first_step
    )
    axes = {row[0]: row[1] for row in connection.execute(found.order_by(_axes.first_ordinal))}
    return axes, _values(connection, attempt_id, names, axes) if axes and names else ()


def _values(
    connection: Connection, attempt_id: int, names: Sequence[str], ordinals: Collection[int]
) -> Iterable[tuple[str, int, bytes]]:
    found = select(_chunk.name, _chunk.first_ordinal, _chunk.data).where(
        _chunk.attempt_id == attempt_id,
        _chunk.name.in_(names),
        _chunk.first_ordinal.between(min(ordinals), max(ordinals)),
    )
    return connection.execute(found)
