"""Features of a run: what each one remembers, what it skips, and that a later row of a step replaces the earlier."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trmon.domain.collapse_risk.risk_inputs import INPUT_NAMES, Statistic
from trmon.domain.framework_names.translation import with_canonical
from trmon.domain.signals.reward_history import LOWER_ATOMS, MAX_ATOMS, QuantileSketch, SmoothedSignal
from trmon.domain.signals.run_features import (
    FEATURE_SIGNALS,
    DriftGrowth,
    FeatureState,
    NonFiniteSteps,
    RunFeatures,
    TemperatureSlope,
    gradient_noise,
)
from trmon_client.core import statistics
from trmon_client.core.signals import batch_signals

READ_NUMBERS = (
    "reward_mean",
    *(name for name, _ in LOWER_ATOMS),
    "entropy",
    "response_length_mean",
    "length_limit_share",
)
READ_NUMBERS += ("kl_k3", "kl_k2", "logp_slope_q", "logp_slope_p", "logp_corr_q", "n_tokens", "effective_signal")


def test_a_smoothed_signal_is_compared_with_its_first_steps_and_with_twenty_steps_before() -> None:
    signal = SmoothedSignal()
    for value in [2.0] * 20 + [1.0] * 200:
        signal = signal.with_value(value)
    assert signal.relative == pytest.approx(0.5)
    assert signal.rise == pytest.approx(0.0, abs=1e-6)
    assert math.isnan(SmoothedSignal().with_value(1.0).relative)
    assert signal.with_value(math.nan) == signal.with_value(math.inf) == signal


@pytest.mark.parametrize(
    ("sampled", "sent", "relative"), [(0.5, 0.1, 0.1), (0.1, 0.5, 0.1), (2.0, 4.0, 4.0), (math.nan, 0.1, 0.1)]
)
def test_of_two_entropies_the_one_nearer_to_its_limit_counts(sampled: float, sent: float, relative: float) -> None:
    features = RunFeatures()
    for factors in [(1.0, 1.0)] * 20 + [(sampled, sent)] * 200:
        numbers = {"sampled_entropy": 2.0 * factors[0]}
        features = features.with_step(numbers, scalars={"entropy": 3.0 * factors[1]})
    assert features.signals()["entropy_relative"] == pytest.approx(relative, rel=1e-3)


@pytest.mark.parametrize(("flat", "swapped"), [(20.0, False), (0.1, False), (20.0, True), (0.1, True)])
def test_an_entropy_that_collapses_is_told_beside_one_that_stays_far_from_its_start(flat: float, swapped: bool) -> None:
    features = RunFeatures()
    for step in range(160):
        collapsing = 2.0 * min(1.0, 0.97 ** (step - 60))
        still = 2.0 * (1.0 if step < 20 else flat)
        sampled, sent = (still, collapsing) if swapped else (collapsing, still)
        features = features.with_step({"sampled_entropy": sampled}, scalars={"entropy": sent})
    told = features.signals()
    relative, rise = told["entropy_relative"], told["entropy_rise"]
    assert (relative < 0.2 and rise < 0.0) or (relative > 3.0 and rise > 0.0)


@pytest.mark.parametrize("sent", [[0.0] * 20 + [0.5] * 40, [0.1, -0.1] * 10 + [-0.5] * 40])
def test_an_entropy_around_zero_has_no_ratio(sent: list[float]) -> None:
    features = RunFeatures()
    for value in sent:
        features = features.with_step({"sampled_entropy": 2.0}, scalars={"entropy": value})
    assert features.signals()["entropy_relative"] == pytest.approx(1.0)


def test_a_sketch_keeps_low_quantiles_of_many_values() -> None:
    values = np.random.default_rng(0).normal(size=5_000)
    sketch = QuantileSketch()
    for part in values.reshape(100, 50):
        sketch = sketch.with_atoms((float(value), 1.0) for value in part)
    assert len(sketch.values) <= MAX_ATOMS
    assert sum(sketch.weights) == pytest.approx(5_000)
    assert sketch.quantile(0.01) == pytest.approx(np.quantile(values, 0.01), abs=0.15)
    assert math.isnan(QuantileSketch().quantile(0.01))


def test_a_signal_that_was_zero_at_the_start_rises_without_bound() -> None:
    signal = SmoothedSignal()
    for _ in range(30):
        signal = signal.with_value(0.0)
    assert math.isnan(signal.relative), "nothing over nothing"
    assert signal.with_value(0.1).relative == math.inf


def test_slopes_are_pooled_until_there_are_enough_tokens() -> None:
    slope = TemperatureSlope()
    for _ in range(19):
        slope = slope.with_step(n_tokens=100.0, slope_q=0.1, slope_p=0.08, corr=0.5)
        assert math.isnan(slope.slope)
    slope = slope.with_step(n_tokens=100.0, slope_q=0.1, slope_p=0.08, corr=0.5)
    assert (slope.slope, slope.correlation) == (pytest.approx(0.08), pytest.approx(0.5))
    for _ in range(50):
        slope = slope.with_step(n_tokens=500.0, slope_q=0.1, slope_p=-0.3, corr=0.5)
    assert slope.slope == 0.0, "slopes of two signs are no temperature"


def test_a_scalar_counts_as_not_a_number_only_if_it_was_one() -> None:
    steps = NonFiniteSteps()
    for scalars in ({"eval": math.nan, "loss": 1.0, "kl": 0.1}, {"eval": math.nan, "loss": 1.0, "kl": 0.1}):
        steps = steps.with_step(scalars, reward=0.5)
    assert steps.count == 0
    steps = steps.with_step({"kl": math.nan}, reward=0.5)
    steps = steps.with_step({"loss": math.inf}, reward=0.5)
    steps = steps.with_step({}, reward=math.inf)
    assert steps.count == 3
    for _ in range(20):
        steps = steps.with_step({"loss": 1.0}, reward=0.5)
    assert steps.count == 0


def test_drift_grows_over_the_median_of_the_first_sixty_steps() -> None:
    growth = DriftGrowth()
    for value in [0.01] * 100 + [1.0] * 100:
        growth = growth.with_value(value)
    assert growth.relative == pytest.approx(100, rel=0.01)
    assert math.isnan(DriftGrowth().with_value(1.0).relative)


def test_a_later_row_of_a_step_replaces_the_earlier_one() -> None:
    twice = once = FeatureState()
    for step in range(30):
        last = {"reward_mean": 0.5 + 0.01 * step, "n_tokens": 1000.0}
        first = {"reward_mean": 0.0, "n_tokens": 1000.0}
        once = once.with_row(last, {}, begins_step=True, is_rollout=True)
        twice = twice.with_row(first, {}, begins_step=True, is_rollout=True).with_row(
            last, {}, begins_step=False, is_rollout=True
        )
    assert twice.after == once.after
    assert FeatureState().after.signals() == {"nonfinite_steps": 0.0}


def test_scalars_under_other_names_are_read() -> None:
    state = FeatureState()
    for _ in range(25):
        scalars = {"critic/rewards/mean": 0.5, "actor/entropy": 1.0}
        state = state.with_row(scalars, with_canonical(scalars), begins_step=True, is_rollout=True)
    found = state.after.signals()
    assert (found["reward_ema"], found["entropy_relative"]) == (pytest.approx(0.5), pytest.approx(1.0))


@settings(max_examples=50)
@given(st.lists(st.dictionaries(st.sampled_from(READ_NUMBERS), st.floats(), max_size=8), max_size=80))
def test_no_number_of_a_float64_breaks_the_features(steps: list[dict[str, float]]) -> None:
    features = RunFeatures()
    for numbers in steps:
        features = features.with_step(numbers, scalars=numbers)
        assert set(features.signals()) <= set(FEATURE_SIGNALS)


@pytest.mark.parametrize("largest", [1.7e308, -1.7e308])
def test_a_number_that_overflows_is_counted_and_not_averaged(largest: float) -> None:
    features = RunFeatures()
    for reward in [0.5] * 30 + [largest] + [0.5] * 30:
        features = features.with_step({"reward_mean": reward}, scalars={"reward_mean": reward})
    signals = features.signals()
    assert signals["reward_ema"] == pytest.approx(0.5)
    assert features.with_step({"reward_mean": largest}, scalars={"loss": largest}).signals()["nonfinite_steps"] == 1.0


def _updates_read(state: FeatureState) -> dict[str, float]:
    fast = state.after.risk_inputs.statistics[Statistic.FAST]
    known = state.after.risk_inputs.statistics[Statistic.COUNT] > 0
    return {name: fast[place] for place, name in enumerate(INPUT_NAMES) if known[place]}


def test_a_rollout_is_read_with_the_updates_of_the_step_before() -> None:
    rollout = {"reward_mean": 0.5, "clip_fraction": 0.0}
    state = FeatureState().with_row(rollout, {}, begins_step=True, is_rollout=True)
    state = state.with_update({"clip_fraction": 0.25})
    assert set(_updates_read(state)) == {"reward_mean"}, "the first rollout has no updates before it"
    state = state.with_row(rollout, {}, begins_step=True, is_rollout=True).with_update({"clip_fraction": 0.5})
    state = state.with_row(rollout, {"lr": 1.0}, begins_step=False, is_rollout=True)
    assert _updates_read(state)["clip_fraction"] == pytest.approx(math.log(0.25), abs=1e-3)


def test_a_rollout_without_updates_and_an_update_without_a_rollout_are_read_as_they_are() -> None:
    numbers = {"clip_fraction": 0.25}
    rollouts = FeatureState()
    for _ in range(2):
        rollouts = rollouts.with_row(numbers, {}, begins_step=True, is_rollout=True)
    updates = FeatureState().with_row(numbers, {}, begins_step=True, is_rollout=False)
    for state in (rollouts, updates):
        assert _updates_read(state)["clip_fraction"] == pytest.approx(math.log(0.25), abs=1e-3)


@pytest.mark.parametrize("seed", range(20))
def test_the_band_contains_the_variance_of_the_mean_gradient(seed: int) -> None:
    random = np.random.default_rng(seed)
    pi = random.dirichlet(np.ones(5))
    tokens, advantages = random.choice(5, 12, p=pi), random.normal(size=12)
    gradients = advantages[:, None] * (np.eye(5)[tokens] - pi)
    logp = np.log(pi[tokens])[:, None]
    columns = statistics.columns(rollout_logprobs=logp, logprobs=logp, mask=np.ones((12, 1)), advantages=advantages)
    numbers = {**batch_signals.compute(columns), "n_sequences": 12.0}
    found = gradient_noise(numbers, grad_norm=float(np.linalg.norm(gradients.mean(0))))
    variance_of_mean = gradients.var(0, ddof=1).sum() / 12
    assert found.signal_strength == pytest.approx((gradients.mean(0) ** 2).sum(), rel=1e-12)
    assert found.pure_noise_low <= variance_of_mean * (1 + 1e-12)
    assert variance_of_mean <= found.pure_noise_high * (1 + 1e-12)


@pytest.mark.parametrize(
    ("numbers", "grad_norm", "expected"),
    [
        ({"proxy2_total_power_low": 5.0, "proxy2_total_power_high": 10.0, "n_sequences": 3.0}, 2.0, (4.0, 0.5, 3.0)),
        ({"proxy2_total_power_low": 1.0, "proxy2_total_power_high": 2.0, "n_sequences": 3.0}, 2.0, (4.0, 0.0, 0.0)),
        (
            {"proxy2_total_power_low": 5.0, "proxy2_total_power_high": 9.0, "n_sequences": 1.0},
            2.0,
            (4.0, None, None),
        ),
        ({"n_sequences": 3.0}, 2.0, (4.0, None, None)),
        ({"proxy2_total_power_low": 5.0, "proxy2_total_power_high": 9.0}, math.nan, (None, None, None)),
    ],
)
def test_noise_needs_the_norm_the_power_and_two_sequences(
    numbers: dict[str, float], grad_norm: float, expected: tuple[float | None, ...]
) -> None:
    found = gradient_noise(numbers, grad_norm=grad_norm)
    assert (found.signal_strength, found.pure_noise_low, found.pure_noise_high) == expected


def test_the_features_of_a_run_hold_the_newest_step() -> None:
    numbers = {"proxy2_total_power_low": 5.0, "proxy2_total_power_high": 9.0, "n_sequences": 3.0}
    features = RunFeatures().with_step(numbers, scalars={"grad_norm": 2.0})
    assert {name: features.signals()[name] for name in ("proxy1_signal_strength", "proxy3_pure_noise_low")} == {
        "proxy1_signal_strength": 4.0,
        "proxy3_pure_noise_low": 0.5,
    }
    assert "proxy1_signal_strength" not in features.with_step(numbers, scalars={}).signals()
