"""Columnar history: a chunk is 256 batches of an attempt with one blob per signal, so that one signal reads fast."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Connection, Select, bindparam, func, select

from trmon.domain.batches.batch import BatchRow
from trmon.store.database.upsert import upsert
from trmon.store.rows.batches import NameDictionary, Names
from trmon.store.schema import tables
from trmon_client.core.wire.packed_columns import byte_shuffle, byte_unshuffle, compress, decompress_frame

CHUNK_BATCHES = 256
COMPLETION_INTERVAL = 32
"""Batches between two checks for a complete chunk: each check reads all batches that are in no chunk yet."""
AXES = np.dtype([("step", "<i8"), ("update", "<i8"), ("ordinal", "<i8"), ("closed_at", "<f8")])
"""The axes of every batch; update -1 is the whole rollout batch."""
_COLUMNS = ("step", "update_index", "ordinal", "closed_at", "signal_names", "signals", "scalar_names", "scalars")
_LAST_ORDINALS = (
    select(tables.chunk_axes.c.attempt_id, func.max(tables.chunk_axes.c.last_ordinal))
    .where(tables.chunk_axes.c.attempt_id.in_(bindparam("attempts", expanding=True)))
    .group_by(tables.chunk_axes.c.attempt_id)
)
"""Built once: building the query takes longer than running it."""


def extend_chunks(connection: Connection, batches: Sequence[BatchRow], *, names: NameDictionary) -> None:
    """Write the chunks that these newly written batches revise or complete."""
    by_attempt: dict[int, list[int]] = {}
    for batch in batches:
        # A batch that is not revised is the newest of its run and in no chunk yet.
        if batch.revised or batch.ordinal % COMPLETION_INTERVAL == 0:
            by_attempt.setdefault(batch.key.attempt_id, []).append(batch.ordinal)
    chunked = last_chunked_ordinals(connection, by_attempt)
    for attempt_id, ordinals in by_attempt.items():
        if min(ordinals) <= chunked[attempt_id]:
            for first, last in _revised_spans(connection, attempt_id, ordinals):
                span = select_unchunked(attempt_id, first - 1).where(tables.batch.c.ordinal <= last)
                _write_chunk(connection, attempt_id, rows=connection.execute(span).all(), names=names)
        if any(ordinal % COMPLETION_INTERVAL == 0 for ordinal in ordinals):
            # A chunk for every 256 batches that are in none.
            rows = connection.execute(select_unchunked(attempt_id, chunked[attempt_id])).all()
            for first in range(0, len(rows) - CHUNK_BATCHES + 1, CHUNK_BATCHES):
                _write_chunk(connection, attempt_id, rows=rows[first : first + CHUNK_BATCHES], names=names)


def last_chunked_ordinals(connection: Connection, attempt_ids: Collection[int]) -> dict[int, int]:
    """Return the last chunked ordinal of each attempt; 0 without chunks."""
    rows = connection.execute(_LAST_ORDINALS, {"attempts": list(attempt_ids)}).all() if attempt_ids else ()
    return dict.fromkeys(attempt_ids, 0) | {row[0]: row[1] for row in rows}


def axes_of(batches: Iterable[tuple[int, int | None, int, float]]) -> Any:
    """Return the axes of batches, [batches] of AXES, from step, update, ordinal and closed_at of each."""
    return np.array([(step, -1 if update is None else update, *others) for step, update, *others in batches], AXES)


def values_by_signal(rows: Sequence[Any], name_sets: Mapping[int, Names]) -> dict[str, Any]:
    """Return the scalars and signals of batch rows by name, float64 [rows], NaN where a row lacks one or is damaged.

    A signal replaces a scalar of the same name.
    """
    values: dict[str, Any] = {}
    for part in ("scalar", "signal"):
        by_set: dict[int, list[int]] = {}
        for i, row in enumerate(rows):
            set_id = row._mapping[f"{part}_names"]
            if len(row._mapping[f"{part}s"]) == 8 * len(name_sets[set_id]):
                by_set.setdefault(set_id, []).append(i)
        for set_id, indices in by_set.items():
            stacked = np.stack([np.frombuffer(rows[i]._mapping[f"{part}s"], "<f8") for i in indices])
            for name, column in zip(name_sets[set_id], stacked.T, strict=True):
                values.setdefault(name, np.full(len(rows), np.nan))[indices] = column
    return values


def read_axes(data: bytes) -> Any:
    """Return the axes of a chunk, [rows] of AXES."""
    planes = np.frombuffer(decompress_frame(data), np.uint8).reshape(AXES.itemsize, -1)
    return np.ascontiguousarray(planes.T).view(AXES).reshape(-1)


def select_unchunked(attempt_id: int, chunked_to: int) -> Select[Any]:
    """Return a query for the batch rows of an attempt that are in no chunk yet, in order."""
    table = tables.batch.c
    return (
        select(*(table[name] for name in _COLUMNS))
        .where(table.attempt_id == attempt_id, table.ordinal > chunked_to)
        .order_by(table.ordinal)
    )


def _revised_spans(connection: Connection, attempt_id: int, ordinals: Sequence[int]) -> set[tuple[int, int]]:
    """Return the first and last ordinals of the chunks that contain any of the ordinals."""
    table = tables.chunk_axes.c
    spans = select(table.first_ordinal, table.last_ordinal).where(
        table.attempt_id == attempt_id, table.last_ordinal >= min(ordinals), table.first_ordinal <= max(ordinals)
    )
    rows = connection.execute(spans).all()
    return {(first, last) for first, last in rows if any(first <= ordinal <= last for ordinal in ordinals)}


def _write_chunk(connection: Connection, attempt_id: int, *, rows: Sequence[Any], names: NameDictionary) -> None:
    name_sets = names.read(connection, {id_ for row in rows for id_ in (row.signal_names, row.scalar_names)})
    axes = axes_of(row[:4] for row in rows)
    key = {"attempt_id": attempt_id, "first_ordinal": int(axes["ordinal"][0])}
    span = {
        "last_ordinal": int(axes["ordinal"][-1]),
        "first_step": int(axes["step"].min()),
        "last_step": int(axes["step"].max()),
    }
    planes = byte_shuffle(axes.tobytes(), AXES.itemsize)
    upsert(connection, tables.chunk_axes, key=tuple(key), rows=[key | span | {"axes": compress(planes)}])
    blobs = [
        key | {"name": name, "data": compress(byte_shuffle(column.astype("<f8", copy=False).tobytes(), 8))}
        for name, column in values_by_signal(rows, name_sets).items()
    ]
    upsert(connection, tables.signal_chunk, key=(*key, "name"), rows=blobs)


@dataclass(frozen=True, slots=True)
class StepRange:
    """A range of steps, both ends included."""

    first_step: int
    last_step: int

    def contains(self, step: Any) -> Any:
        """Return which steps are within the range."""
        return (self.first_step <= step) & (step <= self.last_step)


@dataclass(frozen=True, slots=True, eq=False)
class BatchSeries:
    """The history of some batches of an attempt, in order: their axes, and values by signal, [batches] each."""

    axes: Any
    values: Mapping[str, Any]

    def where(self, kept: Any) -> BatchSeries:
        """Return the history at some batches, bool [batches]."""
        if kept.all():
            return self
        return BatchSeries(self.axes[kept], {name: column[kept] for name, column in self.values.items()})


StoredChunks = tuple[Mapping[int, bytes], Iterable[tuple[str, int, bytes]]]
"""The chunks of an attempt: packed axes by first ordinal, in order; and signal, first ordinal and packed values."""


def attempt_series(*, names: Sequence[str], steps: StepRange, chunks: StoredChunks, newest: BatchSeries) -> BatchSeries:
    """Return the history of signals of an attempt over a range of steps; NaN where a batch lacks a signal.

    Args: newest: the batches that are in no chunk.
    """
    packed_axes, packed_values = chunks
    axes = {first: read_axes(packed) for first, packed in packed_axes.items()}
    columns = {name: [np.full(len(axis), np.nan) for axis in axes.values()] for name in names}
    places = {first: place for place, first in enumerate(axes)}
    for name, first, data in packed_values:
        if first in places:
            planes = decompress_frame(data)
            columns[name][places[first]] = byte_unshuffle(planes, dtype="f8", shape=(1, len(planes) // 8))[0]
    lacking = np.full(len(newest.axes), np.nan)
    values = {name: np.concatenate([*columns[name], newest.values.get(name, lacking)]) for name in names}
    part = BatchSeries(np.concatenate([*axes.values(), newest.axes]), values)
    return part.where(steps.contains(part.axes["step"]))
