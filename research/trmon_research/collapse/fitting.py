"""Fits a model of collapse: extremely randomised trees, whose nodes hold log-odds that are shrunk to the mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logit
from sklearn.ensemble import ExtraTreesClassifier
from sklearn.linear_model import LogisticRegression

from trmon.domain.collapse_risk.risk_inputs import FEATURE_NAMES
from trmon.domain.collapse_risk.risk_model import FORMAT, FittedFeature, ModelFile, RiskCalibration, RiskModel, Tree
from trmon_research.collapse.severity import Floats

MODEL_INPUTS = (
    *("reward_mean", "grad_norm", "sampled_entropy", "kl_k3", "ess_token"),
    *("staleness_kl_k3", "staleness_ess_seq", "clip_fraction"),
)
"""The inputs that the shipped model reads: fewer find as much as all of them on configurations that it has not seen.

The learning rate is none: it tells which mechanism of the lab a run is of, and it falls in most real runs.
"""


def features_of(inputs: Sequence[str]) -> tuple[str, ...]:
    """Return the features of inputs."""
    return tuple(name for name in FEATURE_NAMES if name.rpartition(".")[0] in inputs)


MODEL_FEATURES = features_of(MODEL_INPUTS)
N_TREES, LEAST_LEAF, DEEPEST, FEATURES_TRIED = 60, 30, 8, 0.3
BEYOND = 0.5
"""How far beyond the values it was fitted to a feature may be, as a share of their range, before the model is silent.

At 0, 12% of the moments before a collapse of a held-out configuration are silent, and the AUROC falls by 0.1.
"""
LEAST_KNOWN = 0.05
"""A feature that is known at a smaller share of the moments is not used."""
PRIOR = 10.0
"""Moments at the mean rate that are added to each node, so that a pure leaf is not certain."""
DIGITS = 5

Labels = npt.NDArray[np.bool_]


def fit_model(
    features: Floats,
    collapses: Labels,
    *,
    weights: Floats | None = None,
    names: tuple[str, ...] = MODEL_FEATURES,
) -> RiskModel:
    """Return a model fitted to moments, not yet calibrated: its intercept is that of the mean rate, its slope 1.

    Args: features: [M, FEATURE_NAMES]; collapses, weights: [M]; names: the features that may be used.
    Source: Geurts et al. 2006, "Extremely randomized trees".
    """
    found = [_fitted_feature(name, features[:, FEATURE_NAMES.index(name)]) for name in names]
    used = tuple(feature for feature in found if feature is not None)
    values = np.stack([features[:, FEATURE_NAMES.index(feature.name)] for feature in used], axis=1)
    values = np.where(np.isnan(values), [feature.median for feature in used], values)
    forest = ExtraTreesClassifier(
        n_estimators=N_TREES,
        min_samples_leaf=LEAST_LEAF,
        max_depth=DEEPEST,
        max_features=FEATURES_TRIED,
        random_state=0,
    ).fit(values, collapses, weights)
    rate = float(collapses.mean())
    return RiskModel(
        ModelFile(
            format=FORMAT,
            name="extra trees",
            fitted_on={},
            warn_at=0.5,
            page_at=0.5,
            calibration=RiskCalibration(float(np.log(rate / (1.0 - rate))), 1.0),
            most_reward_error=0.5,
            features=used,
            trees=tuple(_tree(fitted.tree_, rate=rate) for fitted in forest.estimators_),
        )
    )


def run_weights(runs: npt.NDArray[np.intp], collapses: Labels) -> Floats:
    """Return weights [M] of moments: each run counts once before its collapse, and once where none is near.

    Runs differ in how many moments they have; the weights of either outcome add up to its number of moments.
    """
    weights = np.empty(len(runs))
    for outcome in (False, True):
        chosen = collapses == outcome
        _, place, counts = np.unique(runs[chosen], return_inverse=True, return_counts=True)
        of_outcome = 1.0 / counts[place]
        weights[chosen] = of_outcome * (chosen.sum() / of_outcome.sum())
    return weights


def fit_calibration(probabilities: Floats, collapses: Labels) -> RiskCalibration:
    """Return the calibration of the log-odds of what a model predicted of runs that it was not fitted to.

    Args: probabilities, collapses: [M]. Source: Platt 1999.
    """
    regression = LogisticRegression(C=1e6).fit(logit(probabilities)[:, None], collapses)
    return RiskCalibration(_digits(regression.intercept_[0]), _digits(regression.coef_[0, 0]))


def _fitted_feature(name: str, values: Floats) -> FittedFeature | None:
    """Return a feature with its median and the ends of its range; None if it is seldom known or does not vary."""
    known = values[np.isfinite(values)]
    if len(known) < LEAST_KNOWN * len(values) or np.ptp(known) == 0.0:
        return None
    margin = BEYOND * np.ptp(known)
    return FittedFeature(
        name, *(_digits(value) for value in (np.median(known), known.min() - margin, known.max() + margin))
    )


def _tree(fitted: Any, *, rate: float) -> Tree:
    """Return a tree of scikit-learn; the log-odds of its nodes are shrunk to the mean rate, and those of its root 0."""
    n = fitted.weighted_n_node_samples
    positive = fitted.value[:, 0, 1] * n
    share = (positive + PRIOR * rate) / (n + PRIOR)
    log_odds = np.log(share / (1.0 - share))
    is_leaf = fitted.children_left < 0
    return Tree(
        feature=tuple(np.where(is_leaf, 0, fitted.feature).tolist()),
        threshold=tuple(_digits(value) for value in np.where(is_leaf, 0.0, fitted.threshold)),
        left=tuple(np.where(is_leaf, 0, fitted.children_left).tolist()),
        right=tuple(np.where(is_leaf, 0, fitted.children_right).tolist()),
        log_odds=tuple(_digits(value) for value in log_odds - log_odds[0]),
    )


def _digits(value: float) -> float:
    """Return a value in the digits that the file of a model has."""
    return float(f"{value:.{DIGITS}g}")
