"""Signals: the catalogue, and signals of runs by step as arrays and as tables of other libraries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np

from trmon_client.api.answers import AnswerInfo, says

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


class ColumnTable:
    """What has columns of equal length: converts them into tables of other libraries."""

    def columns(self) -> dict[str, Any]:
        """Return the columns by name, numpy arrays [rows]."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas DataFrame. Errors: ImportError that says what to install."""
        table: pandas.DataFrame = _library("pandas").DataFrame(self.columns())
        return table

    def to_polars(self) -> polars.DataFrame:
        """Return a Polars DataFrame. Errors: ImportError that says what to install."""
        table: polars.DataFrame = _library("polars").DataFrame(self.columns())
        return table

    def to_arrow(self) -> pyarrow.Table:
        """Return an Arrow table. Errors: ImportError that says what to install."""
        table: pyarrow.Table = _library("pyarrow").table(self.columns())
        return table


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise ImportError(f"{name} is not installed: pip install {name}", name=name) from None


JsonFloat = float | Literal["inf", "-inf"] | None
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
class SignalSeries:
    """Signals by name over shared rows, [rows] each, oldest first; a row summarizes consecutive batches.

    `step`, `attempt_id`, `update` (-1: the whole rollout batch) and `closed_at` (seconds since the epoch) are those of
    the row's newest batch, `count` the number of its batches. `exact` means that every row is one batch.
    """

    exact: bool
    step: Any
    attempt_id: Any
    update: Any
    closed_at: Any
    count: Any
    bands: Mapping[str, SignalBand]


@dataclass(frozen=True, eq=False, kw_only=True)
class SignalHistory(SignalSeries, ColumnTable):
    """The series of a run's signals, one row a step; `history["reward_mean"]` is an array [rows]."""

    run: str

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


class SignalInfo(AnswerInfo, frozen=True, kw_only=True):
    """A signal or a trainer's scalar with a common name."""

    name: str
    pair: str | None
    unit: str
    words: Annotated[str, says("The signal within a sentence, without its pair.")]
    description: str
    formula: str
    healthy: Annotated[str, says("The range outside which the judge reports it; empty for none.")]
    prometheus: Annotated[bool, says("Whether /metrics exposes it by default.")]


class ScalarInfo(AnswerInfo, frozen=True, kw_only=True):
    """A scalar of a run that is a signal, a part of the reward, of an evaluation or of how responses end."""

    name: str
    part: Literal["signal", "reward", "evaluation", "finish"]
    words: Annotated[str, says("What tells it from others of its part, such as the reward function.")]
    signal: Annotated[str | None, says("The signal that it measures, of an evaluation if that is its part.")]


class BandAnswer(AnswerInfo, frozen=True, kw_only=True):
    """The requested statistics of a signal at each point; all are equal if the series is `exact`."""

    min: list[JsonFloat] | None = None
    max: list[JsonFloat] | None = None
    mean: list[JsonFloat] | None = None
    last: list[JsonFloat] | None = None


class SeriesAnswer(AnswerInfo, frozen=True, kw_only=True):
    """Signals over shared points, oldest first; a point has the step of its last batch."""

    exact: Annotated[bool, says("Whether every point is one batch.")]
    attempt_id: list[int]
    step: list[int]
    update: list[int | None]
    closed_at: list[float]
    count: Annotated[list[int], says("The number of batches of each point.")]
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
    last = _joined([part.last or [] for part in parts], np.float64)
    given = {name: [getattr(part, name) for part in parts] for name in STATISTICS[1:]}
    others = {name: last if None in values else _joined(values, np.float64) for name, values in given.items()}
    return SignalBand(last=last, **others)


def _joined(parts: Sequence[Sequence[Any]], dtype: Any) -> Any:
    """Return lists as one array; None is NaN, and "inf" an infinity."""
    return np.concatenate([np.empty(0, dtype), *(np.array(part, dtype) for part in parts)])


@dataclass(frozen=True, eq=False, kw_only=True)
class RunComparison(ColumnTable):
    """Signals of several runs over the steps that any of them has; NaN where a run lacks the step.

    `values[run][name]` is float64 [steps], and `step` int64 [steps].
    """

    step: Any
    values: Mapping[str, Mapping[str, Any]]

    def columns(self) -> dict[str, Any]:
        """Return the step, and a column `RUN NAME` for each run and signal."""
        named = {f"{run} {name}": array for run, signals in self.values.items() for name, array in signals.items()}
        return {"step": self.step, **named}


def compare_histories(histories: Sequence[SignalHistory]) -> RunComparison:
    """Return histories aligned by step; of several rows of a step, the newest counts."""
    steps = reduce(np.union1d, [history.step for history in histories], np.empty(0, np.int64))
    return RunComparison(step=steps, values={history.run: _aligned(history, steps) for history in histories})


def _aligned(history: SignalHistory, steps: Any) -> dict[str, Any]:
    rows = np.searchsorted(steps, history.step)
    found = {}
    for name in history.bands:
        found[name] = np.full(len(steps), np.nan)
        found[name][rows] = history[name]
    return found
