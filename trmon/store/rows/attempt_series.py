"""The history of one attempt's signals as arrays, put together from its chunks and its newest batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon.store.rows.signal_chunks import read_axes, read_signal


@dataclass(frozen=True, slots=True)
class StepRange:
    """A range of steps, both ends included."""

    first_step: int
    last_step: int

    def contains(self, step: Any) -> Any:
        """Return which steps are within the range."""
        return (self.first_step <= step) & (step <= self.last_step)


@dataclass(frozen=True, slots=True, eq=False)
class AttemptSeries:
    """The history of one attempt: its axes and values, [batches] each."""

    attempt_id: int
    axes: Any
    values: Mapping[str, Any]

    def where(self, kept: Any) -> AttemptSeries:
        """Return the history at some batches, bool [batches]."""
        if kept.all():
            return self
        return AttemptSeries(
            self.attempt_id, self.axes[kept], {name: column[kept] for name, column in self.values.items()}
        )


@dataclass(frozen=True, slots=True, eq=False)
class StoredChunks:
    """The chunks of an attempt over some steps: packed axes by first ordinal, and packed values with their place."""

    axes: Mapping[int, bytes]
    """In the order of their batches."""
    values: Iterable[tuple[str, int, bytes]]
    """Signal, first ordinal, values."""


@dataclass(frozen=True, slots=True, eq=False)
class NewestBatches:
    """The batches of an attempt that are in no chunk, in order: their axes, and values by signal, [batches] each."""

    axes: Any
    values: Mapping[str, Any]


def attempt_series(
    attempt_id: int, *, names: Sequence[str], steps: StepRange, chunks: StoredChunks, newest: NewestBatches
) -> AttemptSeries:
    """Return the history of signals over a range of steps; NaN where a batch lacks a signal."""
    axes = {first: read_axes(packed) for first, packed in chunks.axes.items()}
    columns = {name: [np.full(len(axis), np.nan) for axis in axes.values()] for name in names}
    places = {first: place for place, first in enumerate(axes)}
    for name, first, data in chunks.values:
        if first in places:
            columns[name][places[first]] = read_signal(data)
    lacking = np.full(len(newest.axes), np.nan)
    values = {name: np.concatenate([*columns[name], newest.values.get(name, lacking)]) for name in names}
    part = AttemptSeries(attempt_id, np.concatenate([*axes.values(), newest.axes]), values)
    return part.where(steps.contains(part.axes["step"]))
