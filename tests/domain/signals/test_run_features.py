"""Features of a run: what each one remembers, what it skips, and that a later row of a step replaces the earlier."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trmon.domain.collapse_risk.risk_inputs import INPUT_NAMES, Statistic
from trmon.domain.signals.quantile_sketch import MAX_ATOMS, QuantileSketch
from trmon.domain.signals.run_features import FEATURE_SIGNALS, FeatureState, RunFeatures, gradient_noise
from trmon_client.core import statistics
from trmon_client.core.signals import batch_signals

READ_NUMBERS = (
    *("reward_mean", "entropy", "response_length_mean", "length_limit_share", "kl_k3", "kl_k2", "n_tokens"),
    *("grad_norm", "lr", "n_sequences", "proxy2_total_power_low", "proxy2_total_power_high"),
)


def test_a_sketch_keeps_low_quantiles_of_many_values() -> None:
    values = np.random.default_rng(0).normal(size=5_000)
    sketch = QuantileSketch()
    for part in values.reshape(100, 50):
        sketch = sketch.with_atoms((float(value), 1.0) for value in part)
    assert len(sketch.values) <= MAX_ATOMS
    assert sum(sketch.weights) == pytest.approx(5_000)
    assert sketch.quantile(0.01) == pytest.approx(np.quantile(values, 0.01), abs=0.15)
    assert math.isnan(QuantileSketch().quantile(0.01))


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
    assert FeatureState().after.signals() == {}


@settings(max_examples=50)
@given(st.lists(st.dictionaries(st.sampled_from(READ_NUMBERS), st.floats(), max_size=8), max_size=80))
def test_no_number_of_a_float64_breaks_the_features(steps: list[dict[str, float]]) -> None:
    features = RunFeatures()
    for numbers in steps:
        features = features.with_step(numbers, scalars=numbers)
        assert set(features.signals()) <= set(FEATURE_SIGNALS)


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
