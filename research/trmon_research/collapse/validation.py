"""Predictions of runs that a model was not fitted to: by held-out configurations, or by leaving a kind of run out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import structs
from scipy.special import expit, logit
from sklearn.model_selection import GroupKFold

from trmon.domain.collapse_risk.risk_model import RiskCalibration, RiskModel
from trmon_research.collapse.fitting import MODEL_FEATURES, fit_calibration, fit_model, run_weights
from trmon_research.collapse.moments import Moments
from trmon_research.collapse.stored_runs import Floats, StoredRun
from trmon_research.sweep.sweep_plan import configuration_hash

FOLDS = 5
HEALTHY = "healthy"
HEALTHY_PARTS = 3

Chosen = npt.NDArray[np.bool_]
Folds = Iterator[tuple[Chosen, Chosen]]
"""Which runs a model is fitted to, and which it predicts: two [runs]."""


def by_configuration(runs: Sequence[StoredRun]) -> Folds:
    """Yield folds that part configurations: repetitions with other seeds stay together."""
    groups = [configuration_hash(run.config) for run in runs]
    for _, held in GroupKFold(FOLDS, shuffle=True, random_state=0).split(groups, groups=groups):
        is_held = np.isin(np.arange(len(runs)), held)
        yield ~is_held, is_held


def leaving_out(runs: Sequence[StoredRun], kind: Callable[[StoredRun], str]) -> Iterator[tuple[str, Chosen, Chosen]]:
    """Yield for each kind of run: its name, the runs without it, and those of it."""
    kinds = np.array([kind(run) for run in runs])
    for name in np.unique(kinds):
        yield str(name), kinds != name, kinds == name


def leaving_a_mechanism_out(runs: Sequence[StoredRun]) -> Iterator[tuple[str, Chosen, Chosen]]:
    """Yield for each mechanism: its name, the runs to fit, and its runs with a third of the healthy ones.

    In some mechanisms nearly all runs collapse: healthy runs that the model does not know stand against them.
    """
    healthy = [place for place, run in enumerate(runs) if run.config.mechanism == HEALTHY]
    for part, (name, _, of_mechanism) in enumerate(leaving_out(runs, lambda run: run.config.mechanism)):
        if name == HEALTHY:
            continue
        held = of_mechanism | np.isin(np.arange(len(runs)), healthy[part % HEALTHY_PARTS :: HEALTHY_PARTS])
        yield name, ~held, held


def fit_to(
    runs: Sequence[StoredRun], moments: Moments, fitted: Chosen, *, names: tuple[str, ...] = MODEL_FEATURES
) -> RiskModel:
    """Return a model of the chosen runs, fitted to the moments at which signals can show what comes."""
    used = moments.where(fitted[moments.run] & moments.can_show)
    weights = run_weights(used.run, used.collapses)
    return fit_model(used.values([run.features for run in runs]), used.collapses, weights=weights, names=names)


def predictions(
    runs: Sequence[StoredRun], moments: Moments, folds: Folds, *, names: tuple[str, ...] = MODEL_FEATURES
) -> list[Floats]:
    """Return what models predict at each update of the runs that they were not fitted to, uncalibrated."""
    found = [np.full(run.label.n_updates, np.nan) for run in runs]
    for fitted, held in folds:
        model = fit_to(runs, moments, fitted, names=names)
        for place in np.flatnonzero(held):
            found[place] = model.probabilities(runs[place].features)
    return found


def fit_to_moments(moments: Moments, predicted: Sequence[Floats]) -> RiskCalibration:
    """Return the calibration of uncalibrated predictions by what became of the moments. Source: Platt 1999."""
    return fit_calibration(moments.values(predicted), moments.collapses)


def calibrated(predicted: Sequence[Floats], calibration: RiskCalibration) -> list[Floats]:
    """Return calibrated predictions."""
    return [expit(calibration.intercept + calibration.slope * logit(values)) for values in predicted]


def with_calibration(model: RiskModel, calibration: RiskCalibration) -> RiskModel:
    """Return an uncalibrated model with the calibration of its predictions."""
    intercept = calibration.intercept + calibration.slope * model.file.calibration.intercept
    combined = RiskCalibration(intercept, calibration.slope)
    return RiskModel(structs.replace(model.file, calibration=combined))
