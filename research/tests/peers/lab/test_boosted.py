"""The features of the boosted trees: without a scale, of the past alone, and NaN where nothing is known."""

from __future__ import annotations

import numpy as np

from trmon.domain.collapse_risk.risk_inputs import INPUT_NAMES
from trmon_research.collapse.boosted import PLACES, predictions_of_boosted_trees, relative_features
from trmon_research.collapse.moments import scored_moments
from trmon_research.collapse.scores import auroc
from trmon_research.collapse.stored_runs import RUNS, read_runs
from trmon_research.collapse.validation import by_configuration

REWARD = INPUT_NAMES.index("reward_mean")


def test_relative_features_have_no_scale_and_do_not_look_ahead() -> None:
    inputs = np.abs(np.random.default_rng(0).normal(1.0, 0.1, size=(200, len(INPUT_NAMES))))
    inputs[:, INPUT_NAMES.index("kl_k3")] = np.nan
    features = relative_features(inputs)
    np.testing.assert_array_equal(relative_features(inputs[:150]), features[:150])
    of_reward = np.arange(PLACES.index(REWARD), 5 * len(PLACES), len(PLACES))
    larger = relative_features(np.where(np.arange(len(INPUT_NAMES)) == REWARD, 64.0 * inputs, inputs))
    np.testing.assert_allclose(larger[50:, of_reward], features[50:, of_reward], rtol=0.02)
    assert np.isnan(features[:, PLACES.index(INPUT_NAMES.index("kl_k3"))]).all()


def test_boosted_trees_rank_runs_that_they_were_not_fitted_to() -> None:
    runs = read_runs(RUNS)[::5]
    moments = scored_moments(runs)
    predicted = predictions_of_boosted_trees(runs, moments, by_configuration(runs))
    shown = moments.where(moments.can_show)
    assert auroc(shown.values(predicted), shown.falls) > 0.7
