"""Signals of a run by step, as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from trmon_client.api.data_frames import ColumnTable

JsonFloat = float | str | None
POSITIONS = ("step", "attempt_id", "update", "closed_at", "count")
STATISTICS = ("last", "mean", "min", "max")
UPDATE_OF_ROLLOUT = -1


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SignalBand:
    """One signal, float64 [rows] each, NaN where it is unknown; in a row of one batch all are equal.

    `min`, `max` and `mean` leave NaN out; `last` is the value of the row's newest batch.
    """

    last: Any
    mean: Any
    min: Any
    max: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class SignalHistory(ColumnTable):
    """Signals of a run, one row a step, oldest first; `history["reward_mean"]` is an array [rows].

    `step`, `attempt_id`, `update` (-1: the whole rollout batch) and `closed_at` (seconds since the epoch) are those of
    the row's newest batch, `count` the number of its batches. `exact` means that every row is one batch.
    """

    run: str
    exact: bool
    step: Any
    attempt_id: Any
    update: Any
    closed_at: Any
    count: Any
    bands: Mapping[str, SignalBand]

    def __len__(self) -> int:
        return len(self.step)

    def __getitem__(self, name: str) -> Any:
        """Return the newest value of each row, float64 [rows]. Errors: KeyError."""
        return self.bands[name].last

    def columns(self) -> dict[str, Any]:
        """Return the columns of a table: positions and, for each signal, its value; `name.mean` etc. unless exact."""
        found = {name: getattr(self, name) for name in POSITIONS}
        for name, band in self.bands.items():
            if self.exact:
                found[f"{name}.last" if name in POSITIONS else name] = band.last
            else:
                found |= {f"{name}.{statistic}": getattr(band, statistic) for statistic in STATISTICS}
        return found


class BandAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of a signal in an answer."""

    last: list[JsonFloat]
    mean: list[JsonFloat] | None = None
    min: list[JsonFloat] | None = None
    max: list[JsonFloat] | None = None


class SeriesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a run's history, as the service answers it."""

    exact: bool
    attempt_id: list[int]
    step: list[int]
    update: list[int | None]
    closed_at: list[float]
    count: list[int]
    signals: dict[str, BandAnswer]


def join_series(run: str, names: Sequence[str], parts: Sequence[SeriesAnswer]) -> SignalHistory:
    """Return the history that consecutive parts make up."""
    updates = [[UPDATE_OF_ROLLOUT if update is None else update for update in part.update] for part in parts]
    return SignalHistory(
        run=run,
        exact=all(part.exact for part in parts),
        step=_joined([part.step for part in parts], np.int64),
        attempt_id=_joined([part.attempt_id for part in parts], np.int64),
        update=_joined(updates, np.int64),
        closed_at=_joined([part.closed_at for part in parts], np.float64),
        count=_joined([part.count for part in parts], np.int64),
        bands={name: _band([part.signals[name] for part in parts]) for name in names},
    )


def _band(parts: Sequence[BandAnswer]) -> SignalBand:
    last = _joined([part.last for part in parts], np.float64)
    given = {name: [getattr(part, name) for part in parts] for name in STATISTICS[1:]}
    others = {name: last if None in values else _joined(values, np.float64) for name, values in given.items()}
    return SignalBand(last=last, **others)


def _joined(parts: Sequence[Sequence[Any]], dtype: Any) -> Any:
    """Return lists as one array; None is NaN, and "inf" an infinity."""
    return np.concatenate([np.empty(0, dtype), *(np.array(part, dtype) for part in parts)])
