"""Boosted trees on relative features: a rival of the shipped forest, which its file could hold as well."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from trmon.domain.collapse_risk.risk_inputs import (
    BASELINE_STEPS,
    INPUT_NAMES,
    INPUTS,
    SETTLING_STEPS,
    SMALLEST_SPREAD,
    scaled,
)
from trmon_research.collapse.fitting import MODEL_INPUTS, run_weights
from trmon_research.collapse.moments import Moments
from trmon_research.collapse.severity import Floats
from trmon_research.collapse.stored_runs import StoredRun
from trmon_research.collapse.validation import Folds

FAST, MIDDLE, SLOW = 10, 40, 120
PLACES = [INPUT_NAMES.index(name) for name in MODEL_INPUTS]
HAS_LEVEL = np.array([INPUTS[place].has_level for place in PLACES])
TREES, LEAVES, LEARNING_RATE, LEAST_LEAF, FEATURES_TRIED, L2 = 120, 8, 0.05, 100, 0.3, 10.0


def predictions_of_boosted_trees(runs: Sequence[StoredRun], moments: Moments, folds: Folds) -> list[Floats]:
    """Return held-out log-odds of boosted trees, at each update of a run; they are never silent."""
    features = [relative_features(run.inputs) for run in runs]
    found = [np.zeros(run.n_updates) for run in runs]
    for _, fitted, held in folds:
        used = moments.where(fitted[moments.run] & moments.can_show)
        trees = HistGradientBoostingClassifier(
            max_iter=TREES,
            max_leaf_nodes=LEAVES,
            learning_rate=LEARNING_RATE,
            min_samples_leaf=LEAST_LEAF,
            max_features=FEATURES_TRIED,
            l2_regularization=L2,
            early_stopping=False,
            random_state=0,
        )
        trees.fit(used.values(features), used.falls, run_weights(used.run, used.falls))
        for place in np.flatnonzero(held):
            found[place] = trees.decision_function(features[place])
    return found


def relative_features(inputs: Floats) -> Floats:
    """Return what the shipped inputs say against the run's own past, [updates, 7 x inputs], from [updates, INPUTS].

    Differences of fast, middle and slow averages, the change since the first 30 updates, drawdown and drawup, each over
    the spread; the spread against its slow average; the level of inputs that mean the same in every run.
    """
    values = scaled(inputs)[:, PLACES]
    fast, middle, slow = (_average(values, updates) for updates in (FAST, MIDDLE, SLOW))
    deviation = np.abs(values - middle)
    spread, usual = (_average(deviation, updates) + SMALLEST_SPREAD for updates in (MIDDLE, SLOW))
    settled = np.where(np.arange(len(values))[:, None] >= SETTLING_STEPS, fast, np.nan)
    base = slow[:BASELINE_STEPS][-1]  # which is their plain mean
    distances = (
        fast - middle,
        middle - slow,
        fast - base,
        np.fmax.accumulate(settled) - fast,
        fast - np.fmin.accumulate(settled),
    )
    relative = [distance / spread for distance in distances]
    return np.concatenate([*relative, np.log(spread / usual), fast[:, HAS_LEVEL]], axis=1)


def _average(values: Floats, updates: int) -> Floats:
    """Return the exponential averages of known values, which begin with plain means; NaN before the first one."""
    weight, average, count = 2.0 / (updates + 1), np.zeros(values.shape[1]), np.zeros(values.shape[1])
    found = np.empty_like(values)
    for update, row in enumerate(values):
        known = np.isfinite(row)
        count += known
        average += np.where(known, np.maximum(weight, 1.0 / np.maximum(count, 1.0)) * (row - average), 0.0)
        found[update] = np.where(count > 0, average, np.nan)
    return found
