"""Other predictors: the model of before, fewer inputs, the configuration, and the time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

from trmon_research.collapse.fitting import MODEL_INPUTS, features_of
from trmon_research.collapse.moments import EVERY, FIRST_UPDATE, Moments
from trmon_research.collapse.severity import Floats
from trmon_research.collapse.stored_runs import StoredRun
from trmon_research.collapse.validation import Folds, fit_to
from trmon_research.sweep.sweep_plan import ramps

FOUR = ("chi2_token_p95", "ess_seq", "clip_fraction", "response_length_mean")
"""The four signals of the causes C, D, E and F of [DRIFT]."""
REWARD_ALONE = ("reward_mean", "reward_std")
OF_BEFORE = (*MODEL_INPUTS, "lr")


def predictions(runs: Sequence[StoredRun], moments: Moments, folds: Folds, *, inputs: Sequence[str]) -> list[Floats]:
    """Return held-out predictions at the scored moments of a model that reads some inputs and is never silent."""
    found = [np.zeros(run.n_updates) for run in runs]
    for _, fitted, held in folds:
        model = fit_to(runs, moments, fitted, names=features_of(inputs))
        for place in np.flatnonzero(held):
            found[place][FIRST_UPDATE::EVERY] = model.probabilities(runs[place].features[FIRST_UPDATE::EVERY])
    return found


def moments_of_before(runs: Sequence[StoredRun]) -> Moments:
    """Return the moments by the label that the runs were stopped by, spikes of the gradient included."""
    found = [
        (place, update, falls, update >= run.begins)
        for place, run in enumerate(runs)
        for update in range(FIRST_UPDATE, run.n_updates, EVERY)
        if (falls := run.record.outcome.label.collapses_after(update)) is not None
    ]
    run, update, falls, can_show = zip(*found, strict=True)
    return Moments(np.array(run), np.array(update), np.array(falls), np.array(can_show))


def predictions_of_configurations(runs: Sequence[StoredRun], moments: Moments, folds: Folds) -> list[Floats]:
    """Return held-out predictions from a run's configuration and the update alone: no signal is read."""
    described = [_described(run) for run in runs]
    found = [np.zeros(run.n_updates) for run in runs]
    shown = moments.where(moments.can_show)
    for _, fitted, held in folds:
        used = shown.where(fitted[shown.run])
        forest = ExtraTreesClassifier(n_estimators=100, min_samples_leaf=20, random_state=0)
        forest.fit(used.values(described), used.falls)
        for place in np.flatnonzero(held):
            found[place] = forest.predict_proba(described[place])[:, 1]
    return found


def predictions_of_time(runs: Sequence[StoredRun]) -> list[Floats]:
    """Return the update itself as the prediction."""
    return [np.arange(run.n_updates, dtype=float) for run in runs]


def _described(run: StoredRun) -> Floats:
    """Return the configuration of a run at each update, [updates, settings]."""
    config = run.record.config
    fixed = (
        config.n_epochs,
        config.n_minibatches,
        config.max_grad_norm is None,
        config.router_replay,
        list(type(config.engine.weight_format)).index(config.engine.weight_format),
    )
    moving = ramps(config)
    return np.array(
        [
            [update, *fixed, *(value for ramp in moving for value in (ramp.at(update), ramp.end))]
            for update in range(run.n_updates)
        ],
        np.float64,
    )
