"""Inputs of the risk: which signals they read, and the scale of each."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trmon.domain.collapse_risk.risk_inputs import (
    BASELINE_STEPS,
    COARSE_BITS,
    INPUT_NAMES,
    INPUTS,
    N_INPUTS,
    OF_UPDATES,
    FeatureKind,
    InputHistory,
    Statistic,
    StoredPrecision,
    Values,
    read_inputs,
    read_updates,
    risk_features,
    scaled,
)


def _scaled(**numbers: float) -> dict[str, float]:
    return dict(zip(INPUT_NAMES, scaled(read_inputs(numbers)).tolist(), strict=True))


def test_each_input_has_its_scale() -> None:
    values = _scaled(
        reward_mean=-0.25,
        grad_norm=2.0,
        mismatch_ess_token=0.75,
        mismatch_ratio_mean=1.25,
        clip_fraction=0.0,
    )
    assert values["reward_mean"] == -0.25
    assert values["grad_norm"] == pytest.approx(math.log(2.0))
    assert values["ess_token"] == pytest.approx(math.log(0.25), abs=1e-5)
    assert values["ratio_mean"] == pytest.approx(math.log(0.25), abs=1e-4)
    assert values["clip_fraction"] == pytest.approx(math.log(1e-4))


def test_what_is_missing_or_not_finite_is_nan() -> None:
    values = _scaled(grad_norm=math.inf, reward_mean=1e300, mismatch_kl_k3=math.nan)
    assert all(math.isnan(value) for value in values.values())


def test_the_engines_are_compared_by_mismatch_else_by_the_total() -> None:
    assert _scaled(total_kl_k3=0.5)["kl_k3"] == pytest.approx(math.log(0.5), abs=1e-5)
    assert _scaled(mismatch_kl_k3=0.25, total_kl_k3=0.5)["kl_k3"] == pytest.approx(math.log(0.25), abs=1e-5)


def test_values_out_of_their_range_are_taken_as_its_end() -> None:
    values = _scaled(mismatch_ess_token=1.5, effective_signal=-1.0)
    assert values["ess_token"] == pytest.approx(math.log(1e-6))
    assert values["effective_signal"] == pytest.approx(math.log(1e-9))


def test_inputs_of_updates_can_be_replaced_by_those_of_other_updates() -> None:
    other = {"staleness_kl_k3": 0.5, "clip_fraction": 0.25}
    values = read_inputs({"reward_mean": 1.0, "clip_fraction": 0.125}, of_updates=read_updates(other))
    np.testing.assert_array_equal(values[OF_UPDATES], [0.5, math.nan, math.nan, 0.25])
    assert values[INPUT_NAMES.index("reward_mean")] == 1.0


def _plain(values: list[float]) -> dict[Statistic, float]:
    known = [value for value in values if math.isfinite(value)]
    averages = {Statistic.FAST: 10, Statistic.MIDDLE: 20, Statistic.SLOW: 50}
    state = dict.fromkeys(Statistic, 0.0)
    for place, value in enumerate(known):
        before = dict(state)
        deviation = 0.0 if place == 0 else abs(value - before[Statistic.SLOW])
        if place < 30:
            state[Statistic.BASE_SUM] += value
            state[Statistic.BASE_SUM_SQ] += value**2
            state[Statistic.BASE_SPREAD_SUM] += deviation if place >= 10 else 0.0
        for row, steps in averages.items():
            state[row] = value if place == 0 else before[row] + 2 / (steps + 1) * (value - before[row])
        spread = before[Statistic.SPREAD]
        state[Statistic.SPREAD] = spread + 2 / 21 * (deviation - spread) if place >= 10 else deviation
        middle = state[Statistic.MIDDLE]
        state[Statistic.LARGEST] = max(before[Statistic.LARGEST], middle) if place >= 10 else middle
        state[Statistic.SMALLEST] = min(before[Statistic.SMALLEST], middle) if place >= 10 else middle
        jump = 0.0 if place == 0 else value - before[Statistic.SLOW]
        state[Statistic.JUMP] = max(0.95 * before[Statistic.JUMP], jump)
        state[Statistic.COUNT] += 1
    return state


def test_the_history_equals_a_plain_computation_and_skips_what_is_not_known() -> None:
    rng = np.random.default_rng(4)
    values = rng.normal(size=(80, N_INPUTS)).cumsum(axis=0)
    values[rng.random(values.shape) < 0.2] = np.nan
    values[:, 0] = np.nan
    history = InputHistory()
    for step in values:
        history = history.with_step(step)
    for place in range(N_INPUTS):
        expected = _plain(values[:, place].tolist())
        for statistic in Statistic:
            np.testing.assert_allclose(
                history.statistics[statistic, place], expected[statistic], rtol=1e-12, atol=1e-12
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


def _reference(value: float, bits: int) -> float:
    mantissa, exponent = math.frexp(float(np.float32(value)))
    return math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)


@given(st.floats(-1e30, 1e30).filter(lambda value: value == 0.0 or abs(value) > 1e-30), st.integers(2, 23))
def test_a_value_is_rounded_to_the_nearest_half_to_even(value: float, bits: int) -> None:
    precision = StoredPrecision(bits)
    rounded = precision.rounded(np.array([value]))
    assert float(rounded[0]) == _reference(value, bits)
    assert precision.rounded(rounded.astype(np.float64)) == rounded


def test_what_is_not_finite_stays_and_what_float32_cannot_hold_is_infinite() -> None:
    rounded = StoredPrecision(COARSE_BITS).rounded(np.array([math.nan, math.inf, -math.inf, 1e300]))
    np.testing.assert_array_equal(rounded, np.array([math.nan, math.inf, -math.inf, math.inf], np.float32))


def test_each_value_may_have_its_own_number_of_bits() -> None:
    coarse, fine = StoredPrecision([8, 16]).rounded(np.array([0.999969, 0.999969]))
    assert coarse == 1.0
    assert abs(fine - 0.999969) < 2.0**-16
