"""Baselines of the model: fewer inputs, the configuration, the time, published thresholds, and trmon's rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from sklearn.ensemble import ExtraTreesClassifier

from trmon.domain.collapse_risk.risk_inputs import FEATURE_NAMES
from trmon.lab.grpo.experiment_config import Ramp
from trmon_research.collapse.moments import Moments
from trmon_research.collapse.stored_runs import Floats, StoredRun
from trmon_research.collapse.validation import Folds, predictions
from trmon_research.sweep.sweep_plan import ramps

FOUR = ("chi2_token_p95", "ess_seq", "clip_fraction", "response_length_mean")
"""The four signals of the causes C, D, E and F of [DRIFT]."""
EIGHT = (*FOUR, "reward_mean", "reward_std", "grad_norm", "sampled_entropy", "kl_k3")
"""The same, and reward, gradient norm, entropy and k3; the reward's deviation is its unit."""
REWARD_ALONE = ("reward_mean", "reward_std")

ABOVE: Mapping[str, float] = {
    "mismatch_kl_k1": 0.05,
    "mismatch_chi2_token": 1.0,
    "mismatch_prob_diff_max": 0.5,
    "clip_fraction": 0.2,
    "saturated_fraction": 0.001,
}
BELOW: Mapping[str, float] = {"mismatch_ess_token": 0.5, "mismatch_prob_pearson": 0.95}
"""Published limits of single signals. Source: formulas, section 9, and its sources."""


def features_of(inputs: Sequence[str]) -> tuple[str, ...]:
    """Return the features of inputs."""
    return tuple(name for name in FEATURE_NAMES if name.rsplit(".", 1)[0] in inputs)


def predictions_of_inputs(
    runs: Sequence[StoredRun], moments: Moments, folds: Folds, *, inputs: Sequence[str]
) -> list[Floats]:
    """Return held-out predictions of a model that reads some inputs only."""
    return predictions(runs, moments, folds, names=features_of(inputs))


def predictions_of_configurations(runs: Sequence[StoredRun], moments: Moments, folds: Folds) -> list[Floats]:
    """Return held-out predictions from a run's configuration and the update alone: no signal is read."""
    described = [_described(run) for run in runs]
    found = [np.full(run.label.n_updates, np.nan) for run in runs]
    shown = moments.where(moments.can_show)
    for fitted, held in folds:
        used = shown.where(fitted[shown.run])
        forest = ExtraTreesClassifier(n_estimators=100, min_samples_leaf=20, random_state=0)
        forest.fit(used.values(described), used.collapses)
        for place in np.flatnonzero(held):
            found[place] = forest.predict_proba(described[place])[:, 1]
    return found


def predictions_of_time(runs: Sequence[StoredRun]) -> list[Floats]:
    """Return the update itself as the prediction."""
    return [np.arange(run.label.n_updates, dtype=float) for run in runs]


def published_limits(runs: Sequence[StoredRun]) -> list[Floats]:
    """Return how many published limits the signals of each update break."""
    return [_broken(run, ABOVE, np.greater) + _broken(run, BELOW, np.less) for run in runs]


def _broken(run: StoredRun, limits: Mapping[str, float], breaks: Callable[..., Floats]) -> Floats:
    count = np.zeros(run.label.n_updates)
    for name, limit in limits.items():
        if name in run.columns:
            with np.errstate(invalid="ignore"):
                count += breaks(run.columns[name], limit)
    return count


def _described(run: StoredRun) -> Floats:
    """Return the configuration of a run at each update, [updates, settings]."""
    config, engine = run.config, run.config.engine
    fixed = (
        config.n_epochs,
        config.n_minibatches,
        config.max_grad_norm is None,
        config.router_replay,
        list(type(engine.weight_format)).index(engine.weight_format),
    )
    updates, moving = range(run.label.n_updates), ramps(config)
    return np.array([[update, *fixed, *_ramp_values(moving, update)] for update in updates], np.float64)


def _ramp_values(moving: Sequence[Ramp], update: int) -> list[float]:
    return [value for ramp in moving for value in (ramp.at(update), ramp.end)]
