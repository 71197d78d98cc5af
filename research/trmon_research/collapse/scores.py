"""Scores of predictions with their intervals: bootstrap draws of configurations, the same for all that is compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trmon_research.collapse.moments import FIRST_UPDATE, Moments
from trmon_research.collapse.severity import Floats
from trmon_research.collapse.stored_runs import StoredRun

CALIBRATION_BINS = 10
DRAWS, INTERVAL = 1000, (5, 95)
Falls = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure with the ends of its 90% interval, and what it is of."""

    value: float
    low: float
    high: float
    of: str = ""

    def words(self, form: str = ".3f") -> str:
        """Return it as `0.866 (0.82 to 0.90)`."""
        if self.value != self.value:
            return "-"
        short = form.replace("3", "2")
        return f"{self.value:{form}} ({self.low:{short}} to {self.high:{short}})"


@dataclass(frozen=True, eq=False)
class Draws:
    """How often each run counts in each draw of configurations, [draws, runs]; all ones first."""

    counts: Floats

    @classmethod
    def of(cls, configurations: Sequence[str], *, draws: int = DRAWS) -> Draws:
        """Return draws of as many configurations as there are, with replacement. Args: configurations: of each run."""
        names, place = np.unique(configurations, return_inverse=True)
        rng = np.random.default_rng(0)
        drawn = rng.multinomial(len(names), np.full(len(names), 1 / len(names)), size=draws)
        return cls(np.concatenate([np.ones((1, len(configurations))), drawn[:, place]]))

    def figure(self, score: Callable[[Floats], float], *, of: str = "") -> Figure:
        """Return a score with its interval. Args: score: of how often each run counts, [runs]."""
        values = np.array([score(count) for count in self.counts])
        known = values[1:][~np.isnan(values[1:])]
        low, high = np.percentile(known, INTERVAL) if len(known) else (np.nan, np.nan)
        return Figure(float(values[0]), float(low), float(high), of)


def weighted_auroc(predicted: Floats, falls: Falls) -> Callable[[Floats], float]:
    """Return the area under the receiver operating characteristic as a function of weights, ties counted by half."""
    _, rank = np.unique(predicted, return_inverse=True)

    def area(weights: Floats) -> float:
        well, ill = (np.bincount(rank, weights * chosen, rank.max() + 1) for chosen in (~falls, falls))
        total = well.sum() * ill.sum()
        return float(((np.cumsum(well) - 0.5 * well) * ill).sum() / total) if total else float("nan")

    return area


def auroc(predicted: Floats, falls: Falls) -> float:
    """Return the area under the receiver operating characteristic; NaN without both outcomes."""
    return weighted_auroc(predicted, falls)(np.ones(len(falls)))


def weighted_calibration_error(predicted: Floats, falls: Falls) -> Callable[[Floats], float]:
    """Return the expected calibration error over ten bins of equal width as a function of weights.

    Source: Naeini et al. 2015.
    """
    places = np.minimum((predicted * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)

    def error(weights: Floats) -> float:
        gaps = np.bincount(places, weights * (predicted - falls), CALIBRATION_BINS)
        return float(np.abs(gaps).sum() / weights.sum())

    return error


def of_moments(moments: Moments, score: Callable[[Floats], float]) -> Callable[[Floats], float]:
    """Return a score of weights of moments as one of how often each run counts."""
    return lambda count: score(count[moments.run])


@dataclass(frozen=True, eq=False)
class Alarms:
    """The first update at which each run's prediction reaches its threshold before its end, -1 if none; [runs].

    A collapse that begins before update 60 is no target.
    """

    runs: Sequence[StoredRun]
    first: npt.NDArray[np.intp]

    @classmethod
    def of(cls, runs: Sequence[StoredRun], predicted: Sequence[Floats], thresholds: Floats) -> Alarms:
        """Return the alarms. Args: predicted: [updates] of each run; thresholds: [runs]."""
        first = [
            next(iter(np.flatnonzero(values[FIRST_UPDATE : run.end] > threshold) + FIRST_UPDATE), -1)
            for run, values, threshold in zip(runs, predicted, thresholds, strict=True)
        ]
        return cls(runs, np.array(first))

    @property
    def is_target(self) -> Falls:
        """The runs whose collapse can be found."""
        return np.array([run.onset is not None and run.onset > FIRST_UPDATE for run in self.runs])

    @property
    def leads(self) -> Floats:
        """The updates between alarm and collapse of the collapses found."""
        found = self.is_target & (self.first >= 0)
        return np.array([run.end for run in self.runs])[found] - self.first[found]

    def share(self, chosen: Falls) -> Callable[[Floats], float]:
        """Return the share of the chosen runs that is alarmed, of how often each run counts."""

        def alarmed(count: Floats) -> float:
            total = (count * chosen).sum()
            return float((count * chosen * (self.first >= 0)).sum() / total) if total else float("nan")

        return alarmed


def threshold_at(highest: Sequence[float], *, alarmed: float) -> float:
    """Return the lowest threshold that at most a share of runs exceeds. Args: highest: the highest of each"""
    ordered = sorted(highest)
    return float(ordered[-int(alarmed * len(ordered)) - 1])
