"""Features of the risk: they do not depend on the scale of rewards, gradients, lengths or learning rates."""

from __future__ import annotations

import numpy as np

from trmon.domain.collapse_risk.risk_inputs import (
    BASELINE_STEPS,
    INPUT_NAMES,
    INPUTS,
    FeatureKind,
    InputHistory,
    Values,
    read_inputs,
    risk_features,
    scaled,
)


def _course(n: int = 70, *, reward: float = 1.0, offset: float = 0.0, gradient: float = 1.0) -> Values:
    """Return the features after n steps of a run in which the reward falls and the gradient grows."""
    rng, history = np.random.default_rng(2), InputHistory()
    for step in range(n):
        numbers = {
            "reward_mean": offset + reward * (0.5 - 0.005 * step + 0.05 * rng.random()),
            "reward_std": reward * 0.25,
            "grad_norm": gradient * (1.0 + 0.05 * step + 0.1 * rng.random()),
            "mismatch_kl_k3": 1e-3,
        }
        history = history.with_step(scaled(read_inputs(numbers)))
    return risk_features(history.statistics)


def _of(name: str, kind: FeatureKind, features: Values) -> float:
    return float(features[kind, INPUT_NAMES.index(name)])


def test_features_say_how_a_run_moves_against_its_own_start() -> None:
    features = _course()
    assert _of("reward_mean", FeatureKind.CHANGE, features) < -0.5
    assert _of("reward_mean", FeatureKind.DRAWDOWN, features) > 0.5
    assert _of("reward_mean", FeatureKind.DRAWUP, features) < 0.05
    assert _of("grad_norm", FeatureKind.CHANGE, features) > np.log(1.5)
    assert _of("grad_norm", FeatureKind.TREND, features) > 0.1
    assert _of("grad_norm", FeatureKind.SCORE, features) > 2.0
    assert abs(_of("kl_k3", FeatureKind.CHANGE, features)) < 1e-12


def test_features_do_not_depend_on_the_scale_of_rewards_and_gradients() -> None:
    plain, other = _course(), _course(reward=64.0, offset=8.0, gradient=1024.0)
    known = np.isfinite(plain)
    assert (known == np.isfinite(other)).all()
    # Rewards are read in 8 significant bits, of which the offset takes some.
    np.testing.assert_allclose(other[known], plain[known], rtol=0.1, atol=0.05)


def test_only_inputs_whose_size_means_the_same_everywhere_have_a_level() -> None:
    features = _course()
    assert np.isnan(_of("grad_norm", FeatureKind.LEVEL, features))
    assert _of("kl_k3", FeatureKind.LEVEL, features) < np.log(2e-3)
    assert {given.name for given in INPUTS if not given.has_level} >= {
        "reward_mean",
        "grad_norm",
        "response_length_mean",
    }


def test_an_input_has_no_features_before_it_has_a_baseline() -> None:
    assert np.isnan(_course(BASELINE_STEPS - 1)).all()
    assert np.isfinite(_of("reward_mean", FeatureKind.CHANGE, _course(BASELINE_STEPS)))
    assert np.isnan(_of("sampled_entropy", FeatureKind.CHANGE, _course()))
