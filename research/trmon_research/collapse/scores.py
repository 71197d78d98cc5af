"""Scores of predictions: at moments by AUROC and calibration, over whole runs by alarms and their lead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
import numpy.typing as npt
from sklearn.metrics import roc_auc_score

from trmon_research.collapse.moments import FIRST_UPDATE
from trmon_research.collapse.stored_runs import Floats, StoredRun

CALIBRATION_BINS = 10


def auroc(predicted: Floats, collapses: npt.NDArray[np.bool_]) -> float:
    """Return the area under the receiver operating characteristic; NaN without both outcomes."""
    known = np.isfinite(predicted)
    if len(np.unique(collapses[known])) < 2:
        return float("nan")
    return float(roc_auc_score(collapses[known], predicted[known]))


def calibration_error(predicted: Floats, collapses: npt.NDArray[np.bool_]) -> float:
    """Return the expected calibration error over ten bins of equal width. Source: Naeini et al. 2015."""
    places = np.minimum((predicted * CALIBRATION_BINS).astype(int), CALIBRATION_BINS - 1)
    gaps = [
        abs(predicted[places == place].mean() - collapses[places == place].mean()) * (places == place).mean()
        for place in np.unique(places)
    ]
    return float(sum(gaps))


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmScore:
    """What alarms at a threshold say of whole runs: how many collapses are found before they begin, and how early."""

    threshold: float
    collapses: int
    found: int
    median_lead: float
    others: int
    others_alarmed: int

    @property
    def share_found(self) -> float:
        """The share of the collapses that is found."""
        return self.found / self.collapses if self.collapses else float("nan")

    @property
    def share_alarmed(self) -> float:
        """The share of the other runs that is alarmed."""
        return self.others_alarmed / self.others if self.others else float("nan")


def first_alarm(predicted: Floats, *, end: int, threshold: float) -> int | None:
    """Return the first update from 60 to before `end` at which a prediction reaches the threshold."""
    reached = np.flatnonzero(predicted[FIRST_UPDATE:end] >= threshold)
    return int(reached[0]) + FIRST_UPDATE if len(reached) else None


def alarm_score(runs: Sequence[StoredRun], predicted: Sequence[Floats], *, threshold: float) -> AlarmScore:
    """Return the score of alarms; collapses that begin before update 60 are left out.

    Args: predicted: [updates] of each run.
    """
    alarms = [
        first_alarm(values, end=run.end, threshold=threshold) for run, values in zip(runs, predicted, strict=True)
    ]
    pairs = list(zip(runs, alarms, strict=True))
    scorable = [(run, alarm) for run, alarm in pairs if run.has_collapsed and run.end > FIRST_UPDATE]
    leads = [run.end - alarm for run, alarm in scorable if alarm is not None]
    others = [alarm for run, alarm in pairs if not run.has_collapsed]
    return AlarmScore(
        threshold=threshold,
        collapses=len(scorable),
        found=len(leads),
        median_lead=median(leads) if leads else float("nan"),
        others=len(others),
        others_alarmed=sum(alarm is not None for alarm in others),
    )


def threshold_at(runs: Sequence[StoredRun], predicted: Sequence[Floats], *, false_alarms: float) -> float:
    """Return the lowest threshold at which at most a share of the runs without a collapse is alarmed."""
    highest = sorted(
        float(np.nanmax(values[FIRST_UPDATE:], initial=0.0))
        for run, values in zip(runs, predicted, strict=True)
        if not run.has_collapsed
    )
    allowed = int(false_alarms * len(highest))
    return float(np.nextafter(highest[-allowed - 1], np.inf))
