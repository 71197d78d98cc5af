"""Predictions of runs that a model was not fitted to: by held-out configurations, or by leaving a kind of run out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec import structs
from scipy.special import expit, logit
from sklearn.model_selection import GroupKFold

from trmon.domain.collapse_risk.risk_inputs import FEATURE_NAMES
from trmon.domain.collapse_risk.risk_model import RiskCalibration, RiskModel
from trmon_research.collapse.fitting import MODEL_FEATURES, fit_calibration, fit_model, run_weights
from trmon_research.collapse.moments import FIRST_UPDATE, Moments
from trmon_research.collapse.scores import threshold_at
from trmon_research.collapse.severity import Floats
from trmon_research.collapse.stored_runs import StoredRun

FOLDS = 5
HEALTHY = "healthy"
HEALTHY_PARTS = 3
LEAST_COLLAPSES = 5
"""Mechanisms with fewer collapses are left out together."""
OTHERS = "the others"

Chosen = npt.NDArray[np.bool_]
Folds = Sequence[tuple[str, Chosen, Chosen]]
"""Of each fold its name, which runs a model is fitted to, and which it predicts: two [runs]."""


def by_configuration(runs: Sequence[StoredRun]) -> Folds:
    """Return folds that part configurations: repetitions with other seeds stay together."""
    groups = [run.configuration for run in runs]
    parts = GroupKFold(FOLDS, shuffle=True, random_state=0).split(groups, groups=groups)
    held = [np.isin(np.arange(len(runs)), part) for _, part in parts]
    return [(str(place), ~one, one) for place, one in enumerate(held)]


def leaving_a_mechanism_out(runs: Sequence[StoredRun]) -> Folds:
    """Return folds that each hold a mechanism with a third of the healthy runs, which the model does not know either.

    Those with too few collapses are held together. The healthy runs part by configuration.
    """
    mechanisms = np.array([run.mechanism for run in runs])
    collapses = {
        name: sum(run.onset is not None and run.onset > FIRST_UPDATE for run in runs if run.mechanism == name)
        for name in np.unique(mechanisms).tolist()
        if name != HEALTHY
    }
    stratum = [name if collapses.get(name, 0) >= LEAST_COLLAPSES else OTHERS for name in mechanisms.tolist()]
    healthy = sorted({run.configuration for run in runs if run.mechanism == HEALTHY})
    part_of = {name: place % HEALTHY_PARTS for place, name in enumerate(healthy)}
    folds = []
    for place, name in enumerate(sorted(set(stratum))):
        held = np.array(
            [
                part_of[run.configuration] == place % HEALTHY_PARTS if run.mechanism == HEALTHY else of == name
                for run, of in zip(runs, stratum, strict=True)
            ]
        )
        folds.append((name, ~held, held))
    return folds


def fit_to(
    runs: Sequence[StoredRun], moments: Moments, fitted: Chosen, *, names: tuple[str, ...] = MODEL_FEATURES
) -> RiskModel:
    """Return a model of the chosen runs, fitted to the moments at which signals can show what comes."""
    used = moments.where(fitted[moments.run] & moments.can_show)
    model = fit_model(
        used.values([run.features for run in runs]), used.falls, weights=run_weights(used.run, used.falls), names=names
    )
    error = max(runs[place].reward_error for place in set(used.run.tolist()))
    return RiskModel(structs.replace(model.file, most_reward_error=round(error, 3)))


def speaks(model: RiskModel, run: StoredRun) -> Chosen:
    """Return at which updates a model is not silent on a run, [updates]; its first rows are silent, too."""
    places = [FEATURE_NAMES.index(feature.name) for feature in model.file.features]
    lowest, highest = np.array([(feature.lowest, feature.highest) for feature in model.file.features]).T
    values = run.features[:, places]
    is_inside = ~((values < lowest) | (values > highest)).any(axis=1)
    is_quiet = run.reward_error <= model.file.most_reward_error
    return is_inside & is_quiet & (np.arange(run.n_updates) >= FIRST_UPDATE - 1)


@dataclass(frozen=True, eq=False)
class HeldOut:
    """Predictions of runs by models that were not fitted to them, with 0 where the model is silent.

    `raw` ones are not calibrated, and never 0; `calibrated` ones are by a calibration that the run's own fold had no
    part in. `spoken` says where the model speaks, `models` which one predicted a run, `fold` in which one it was held;
    `highest` has of each fold the highest predictions of never-hurt runs that it does not hold, for thresholds.
    """

    raw: list[Floats]
    calibrated: list[Floats]
    spoken: list[Chosen]
    models: list[RiskModel]
    fold: npt.NDArray[np.intp]
    highest: list[list[float]]

    @classmethod
    def of(cls, runs: Sequence[StoredRun], moments: Moments, folds: Folds, *, is_nested: bool = False) -> HeldOut:
        """Fit a model a fold; a run that several folds hold is predicted by the first of them.

        Args: is_nested: calibrate a fold by held-out predictions within the runs that its model is fitted to, not by
        those of the other folds, which are of other kinds of runs.
        """
        fold, models, raw, spoken = _predicted(runs, moments, folds)
        found, with_own, highest = [np.zeros(0)] * len(runs), list[RiskModel](), list[list[float]]()
        for place, (_, fitted, held) in enumerate(folds):
            others, said, known = raw, spoken, (fold != place) & ~held
            if is_nested:
                inner = [(name, fit & fitted, part & fitted) for name, fit, part in by_configuration(runs)]
                _, _, others, said = _predicted(runs, moments, inner)
                known = fitted
            used = moments.where(known[moments.run] & moments.can_show)
            used = used.where(used.values(said).astype(bool))
            calibration = fit_calibration(used.values(others), used.falls)
            with_own.append(with_calibration(models[place], calibration))
            for run in np.flatnonzero(fold == place):
                found[run] = calibrated(raw[run], spoken[run], calibration)
            well = [run for run in np.flatnonzero(known) if runs[run].was_never_hurt]
            highest.append([float(calibrated(others[run], said[run], calibration).max(initial=0.0)) for run in well])
        return cls(raw, found, spoken, [with_own[place] for place in fold], fold, highest)

    def thresholds(self, *, alarmed: float) -> Floats:
        """Return thresholds [runs] that a share of the never-hurt runs of other folds exceeds."""
        return np.array([threshold_at(self.highest[place], alarmed=alarmed) for place in self.fold])


def _predicted(
    runs: Sequence[StoredRun], moments: Moments, folds: Folds
) -> tuple[npt.NDArray[np.intp], list[RiskModel], list[Floats], list[Chosen]]:
    """Return the fold of each run, the model of each fold, and what it predicts of its runs and where it speaks."""
    fold, models = np.full(len(runs), -1), list[RiskModel]()
    raw, spoken = [np.zeros(0)] * len(runs), [np.zeros(0, bool)] * len(runs)
    for place, (_, fitted, held) in enumerate(folds):
        models.append(fit_to(runs, moments, fitted))
        for run in np.flatnonzero(held & (fold < 0)):
            fold[run], raw[run] = place, models[place].probabilities(runs[run].features)
            spoken[run] = speaks(models[place], runs[run])
    return fold, models, raw, spoken


def calibrated(raw: Floats, spoken: Chosen, calibration: RiskCalibration) -> Floats:
    """Return calibrated predictions, 0 where the model is silent."""
    return np.where(spoken, expit(calibration.intercept + calibration.slope * logit(raw)), 0.0)


def with_calibration(model: RiskModel, calibration: RiskCalibration) -> RiskModel:
    """Return an uncalibrated model with the calibration of its predictions."""
    intercept = calibration.intercept + calibration.slope * model.file.calibration.intercept
    combined = RiskCalibration(intercept, calibration.slope)
    return RiskModel(structs.replace(model.file, calibration=combined))
