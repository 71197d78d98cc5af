"""The features of the model: each input against the run's own baseline, its averages, its extremes and its spread."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from trmon.domain.collapse_risk.input_history import BASELINE_STEPS, SETTLING_STEPS, Statistic
from trmon.domain.collapse_risk.risk_inputs import INPUT_NAMES, INPUTS, N_INPUTS, REWARD, REWARD_STD, Values

SMALLEST_SPREAD, SMALLEST_UNIT = 1e-3, 1e-9


class FeatureKind(IntEnum):
    """What a feature says of its input."""

    LEVEL = 0
    CHANGE = 1
    """The fast average less the mean of the baseline."""
    TREND = 2
    """The fast average less the slow one."""
    SCORE = 3
    """The change over the baseline's standard deviation."""
    DRAWDOWN = 4
    DRAWUP = 5
    """How far the average is below its largest, above its smallest value."""
    SPREAD = 6
    """The logarithm of the mean deviation over that of the baseline."""
    JUMP = 7
    """The largest rise above the slow average in the last steps."""


N_KINDS = len(FeatureKind)
FEATURE_NAMES = tuple(f"{name}.{kind.name.lower()}" for kind in FeatureKind for name in INPUT_NAMES)
"""The features in the order of the flattened matrix [FeatureKind, INPUTS]."""
_LEVEL_IF_ANY = np.array([0.0 if given.has_level else np.nan for given in INPUTS])
_REWARD_STD = INPUT_NAMES.index(REWARD_STD)
_REWARDS = [INPUT_NAMES.index(REWARD), _REWARD_STD]


def risk_features(statistics: Values) -> Values:
    """Return the features [FeatureKind, INPUTS] of a history; NaN of inputs with fewer values than a baseline.

    Rewards have no scale of their own: they are measured in mean standard deviations of the rewards of a batch at the
    start of the run.
    """
    in_units = np.ones(N_INPUTS)
    in_units[_REWARDS] = BASELINE_STEPS / max(statistics[Statistic.BASE_SUM, _REWARD_STD], SMALLEST_UNIT)
    given = statistics * in_units
    base = given[Statistic.BASE_SUM] / BASELINE_STEPS
    variance = given[Statistic.BASE_SUM_SQ] * in_units / BASELINE_STEPS - base * base
    fast, middle = given[Statistic.FAST], given[Statistic.MIDDLE]
    features = np.empty((N_KINDS, N_INPUTS))
    features[FeatureKind.LEVEL] = fast + _LEVEL_IF_ANY
    features[FeatureKind.CHANGE] = change = fast - base
    features[FeatureKind.TREND] = fast - given[Statistic.SLOW]
    features[FeatureKind.SCORE] = change / (np.sqrt(np.maximum(variance, 0.0)) + SMALLEST_SPREAD)
    features[FeatureKind.DRAWDOWN] = given[Statistic.LARGEST] - middle
    features[FeatureKind.DRAWUP] = middle - given[Statistic.SMALLEST]
    base_spread = given[Statistic.BASE_SPREAD_SUM] / (BASELINE_STEPS - SETTLING_STEPS)
    features[FeatureKind.SPREAD] = np.log((given[Statistic.SPREAD] + SMALLEST_SPREAD) / (base_spread + SMALLEST_SPREAD))
    features[FeatureKind.JUMP] = given[Statistic.JUMP]
    features[:, statistics[Statistic.COUNT] < BASELINE_STEPS] = np.nan
    return features
