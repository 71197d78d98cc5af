"""The history of signals as points, each with the minimum, maximum, mean and last value of its batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from trmon.domain.model.identity import BatchKey


@dataclass(frozen=True, slots=True, eq=False)
class SeriesBand:
    """One signal over the points, float64 [points] each; NaN where no batch of a point has a value.

    `min`, `max` and `mean` leave NaN out; `last` is the newest batch's value, NaN or not.
    """

    min: Any
    max: Any
    mean: Any
    last: Any


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SignalSeries:
    """Signals of a run by name over shared points, [points] each, oldest first.

    Each point summarizes `count` consecutive batches; `attempt_id`, `step`, `update` (-1: the whole rollout batch) and
    `closed_at` are those of the last one. `exact` means that every point is one batch.
    """

    exact: bool
    attempt_id: Any
    step: Any
    update: Any
    closed_at: Any
    count: Any
    bands: Mapping[str, SeriesBand]

    def batches(self) -> list[BatchKey]:
        """Return the last batch of each point."""
        keys = zip(self.attempt_id.tolist(), self.step.tolist(), self.update.tolist(), strict=True)
        return [BatchKey(attempt_id, step, None if update < 0 else update) for attempt_id, step, update in keys]


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
            name: SeriesBand(*[column] * 4) if exact else _band(column, edges[:-1]) for name, column in values.items()
        },
    )


def _band(column: Any, starts: Any) -> SeriesBand:
    """Reduce the values between consecutive starts."""
    known = ~np.isnan(column)
    counts = np.add.reduceat(known, starts, dtype=np.int64)
    some = counts > 0
    last = np.append(starts[1:], len(column)) - 1
    with np.errstate(invalid="ignore"):
        sums = np.add.reduceat(np.where(known, column, 0.0), starts)
        return SeriesBand(
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
