"""Signals of a run: their remembered history, features of the run and of its drift, and the service's own catalogue."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.domain.pipeline.closings import closing
from tests.domain.trainer import report
from trmon.domain.collapse_risk.risk_inputs import INPUT_NAMES, Statistic
from trmon.domain.pipeline.close_batch import close_batch
from trmon.domain.signals.derived_signals import DERIVED, SHADOW_PREFIX
from trmon.domain.signals.run_features import (
    FEATURE_SIGNALS,
    FeatureState,
    RunFeatures,
    describe_drift,
    gradient_noise,
    k3_excess,
    staleness_lag,
)
from trmon.domain.signals.windows import BASELINE_ROWS, MAX_ATOMS, WINDOW_ROWS, Baseline, QuantileSketch, SignalWindow
from trmon_client.core import statistics
from trmon_client.core.bounds import engine_lag
from trmon_client.core.columns import Columns, SequenceMatrix
from trmon_client.core.signals import batch_signals
from trmon_client.core.signals.batch_signals import SIGNALS
from trmon_client.core.statistics import columns

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


def of(d: list[float]) -> Columns:
    """Return the columns of one sequence whose token log-ratios are d, mismatch only."""
    old = np.full((1, len(d)), -8.0)
    return columns(rollout_logprobs=old - np.array([d]), old_logprobs=old, mask=np.ones((1, len(d)), bool))


@pytest.mark.parametrize(
    ("d", "excess"),
    [
        pytest.param([0.0] * 8, 0.0, id="engines that agree to the last bit"),
        pytest.param([0.1, -0.1] * 8, 0.00667, id="symmetric noise is valid"),
        pytest.param([0.0] * 7 + [6.0], 2.354, id="one token that explodes"),
        pytest.param([3.0] * 16, 0.536, id="a shift of every token shows in k1 as well"),
    ],
)
def test_k3_excess_is_k3_over_ten_times_what_valid_log_probs_can_show(d: list[float], excess: float) -> None:
    assert k3_excess(SequenceMatrix.of(of(d)), "mismatch") == pytest.approx(excess, rel=0.01, abs=1e-9)


def test_without_a_valid_token_k3_excess_is_nan() -> None:
    empty = columns(rollout_logprobs=np.zeros((2, 3)), old_logprobs=np.zeros((2, 3)), mask=np.zeros((2, 3), bool))
    assert math.isnan(k3_excess(SequenceMatrix.of(empty), "mismatch"))


@pytest.mark.parametrize(
    ("given", "trainer_version", "old_version", "lag"),
    [
        pytest.param("old", None, None, 0.0, id="mismatch is at one set of weights by definition"),
        pytest.param("old versions", 7, None, 3.0, id="unless versions say otherwise"),
        pytest.param("old versions", 7, 5, 1.0, id="of pi_old, where its version is named"),
        pytest.param("versions", 4, None, 0.0, id="without mismatch the trainer's version tells"),
        pytest.param("", 4, None, 0.0, id="without mismatch and versions it is assumed to be 0"),
        pytest.param("versions", None, None, 0.0, id="without the trainer's version too"),
    ],
)
def test_engine_lag_is_the_number_of_versions_between_the_two_sides(
    given: str, trainer_version: int | None, old_version: int | None, lag: float
) -> None:
    logprobs = np.full((2, 3), -1.0)
    arguments: dict[str, Any] = {"rollout_logprobs": logprobs, "logprobs": logprobs, "mask": np.ones((2, 3), bool)}
    if "old" in given:
        arguments["old_logprobs"] = logprobs
    if "versions" in given:
        arguments["versions"] = np.array([4, 6])
    found = columns(**arguments, trainer_version=trainer_version, old_version=old_version)
    assert engine_lag(found) == pytest.approx(lag, nan_ok=True)


def test_without_a_staleness_pair_there_is_no_staleness_lag() -> None:
    assert math.isnan(staleness_lag(of([0.1]), version_lag=3.0))


MISMATCH = {"mismatch_kl_k3": 0.03, "engine_lag": 0.0}
STALENESS = {"staleness_kl_k3": 0.2, "staleness_lag": 3.0}
TOTAL = {"total_kl_k3": 0.21, "version_lag_max": 4.0}


@pytest.mark.parametrize(
    ("signals", "said"),
    [
        (MISMATCH | STALENESS | TOTAL, "staleness dominates (kl_k3 0.2, lag 3)"),
        (MISMATCH | {"staleness_kl_k3": 0.001}, "mismatch dominates (kl_k3 0.03, lag 0)"),
        (TOTAL, "total is the only pair (kl_k3 0.21, lag 4)"),
        ({"mismatch_kl_k3": math.nan} | {"total_kl_k3": 0.5}, "total is the only pair (kl_k3 0.5, lag unknown)"),
        ({}, "no pair is known"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_pair_with_the_larger_k3_is_named_with_its_lag(signals: dict[str, float], said: str) -> None:
    assert describe_drift(signals) == said


def test_every_signal_of_a_row_is_in_one_catalogue_and_every_derived_one_is_made() -> None:
    row = close_batch(closing(report(0))).row
    own = {name for name in row.signals if not name.startswith(SHADOW_PREFIX)} - SIGNALS.keys()
    assert own <= DERIVED.keys()
    assert DERIVED.keys() - own <= {
        *FEATURE_SIGNALS,
        "baseline",
        "sequence_weight_mean",
        "sequence_weight_ess",
        "minorizer",
        "minorizer_vacuous",
        "turn_mask_rate",
        "turn_mask_rate_tokens",
    }, "features need a longer run, weights a policy, a minorizer exact KL, turns their ids, a baseline a change"
    assert not DERIVED.keys() & SIGNALS.keys()


def filled(values: dict[int, float]) -> SignalWindow:
    window = SignalWindow()
    for step, value in values.items():
        window = window.with_value(step, value)
    return window


@pytest.mark.parametrize(
    ("values", "step", "value", "expected"),
    [
        pytest.param({}, 3, 1.0, {3: 1.0}, id="the first value is kept"),
        pytest.param({1: 1.0, 2: 2.0}, 2, 5.0, {1: 1.0, 2: 5.0}, id="a later update of the step replaces it"),
        pytest.param({1: 1.0, 7: 2.0, 9: 3.0}, 5, 4.0, {1: 1.0, 5: 4.0}, id="a restart that goes back forgets"),
        pytest.param({1: 1.0}, 2, math.nan, {1: 1.0}, id="nan is ignored"),
        pytest.param({1: 1.0}, 2, math.inf, {1: 1.0, 2: math.inf}, id="infinity is kept"),
    ],
)
def test_a_window_holds_one_value_a_step(
    values: dict[int, float], step: int, value: float, expected: dict[int, float]
) -> None:
    window = filled(values).with_value(step, value)
    assert dict(zip(window.steps, window.values, strict=True)) == expected


def test_a_window_drops_the_oldest_values() -> None:
    window = filled({step: float(step) for step in range(2 * WINDOW_ROWS)})
    assert window.steps == tuple(range(WINDOW_ROWS, 2 * WINDOW_ROWS))


@pytest.mark.parametrize(
    ("values", "growth"),
    [
        pytest.param({}, math.nan, id="nothing yet"),
        pytest.param(dict.fromkeys(range(102), 10.0), math.nan, id="too few values around 100 steps earlier"),
        pytest.param(dict.fromkeys(range(120), 10.0), 1.0, id="steady"),
        pytest.param({step: 10.0 if step < 60 else 13.0 for step in range(120)}, 1.3, id="grown by three tenths"),
        pytest.param({step: 10.0 if step < 110 else 15.0 for step in range(0, 160, 10)}, 1.5, id="every tenth step"),
        pytest.param(dict.fromkeys(range(120), 0.0), math.nan, id="an earlier median of zero"),
        pytest.param({step: 90.0 if step == 119 else 10.0 for step in range(120)}, 1.0, id="one outlier is no growth"),
    ],
)
def test_growth_is_against_five_values_around_a_hundred_steps_earlier(values: dict[int, float], growth: float) -> None:
    assert filled(values).growth(over_steps=100) == pytest.approx(growth, nan_ok=True)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({}, math.nan, id="nothing yet"),
        pytest.param({0: 1.0, 1: 1.0, 2: 1.0, 3: 1.0, 4: 9.0}, math.nan, id="too few values before"),
        pytest.param({**dict.fromkeys(range(9), 2.0), 9: 30.0}, 15.0, id="over the median of those before"),
        pytest.param(
            {**dict.fromkeys(range(90), 1.0), **dict.fromkeys(range(90, 100), 3.0)}, 1.0, id="of the span only"
        ),
        pytest.param({**dict.fromkeys(range(9), 0.0), 9: 3.0}, math.nan, id="a median of zero"),
    ],
)
def test_relative_is_against_the_rolling_median(values: dict[int, float], expected: float) -> None:
    assert filled(values).relative(over_steps=9) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        pytest.param({}, math.nan, id="nothing yet"),
        pytest.param({step: 2.0 * step for step in range(10)}, math.nan, id="a window shorter than the span"),
        pytest.param({step: 7.0 + 2.0 * step for step in range(11)}, 2.0, id="a line"),
        pytest.param({step: 0.5 * step for step in range(0, 40, 2)}, 0.5, id="a line of every other step"),
        pytest.param({0: 0.0, 10: 5.0}, math.nan, id="too few values in the span"),
        pytest.param({step: math.inf if step == 9 else 0.0 for step in range(11)}, math.nan, id="an infinite value"),
        pytest.param(dict.fromkeys(range(40), 3.0), 0.0, id="flat"),
    ],
)
def test_slope_is_of_least_squares_over_the_span(values: dict[int, float], expected: float) -> None:
    assert filled(values).slope(over_steps=10) == pytest.approx(expected, nan_ok=True)


def baseline(values: list[float]) -> Baseline:
    made = Baseline()
    for step, value in enumerate(values):
        made = made.with_value(step, value)
    return made


def test_a_baseline_is_the_median_of_the_first_steps_and_never_moves() -> None:
    first = [float(value) for value in range(BASELINE_ROWS)]
    assert all(math.isnan(baseline(first[:n]).value) for n in range(BASELINE_ROWS))
    assert baseline(first).value == (BASELINE_ROWS - 1) / 2
    assert baseline(first).with_value(99, 1e9) == baseline(first)
    assert Baseline().with_value(0, math.nan) == Baseline()


def test_the_last_update_of_a_step_is_the_one_in_the_baseline() -> None:
    assert Baseline().with_value(0, 1.0).with_value(0, 2.0).with_value(1, 3.0) == Baseline(
        steps=(0, 1), values=(2.0, 3.0)
    )
    full = baseline([0.0] * BASELINE_ROWS)
    assert full.with_value(BASELINE_ROWS - 1, 5.0).values[-1] == 5.0


@pytest.mark.parametrize(
    ("first", "value", "expected"),
    [
        pytest.param([float(i) for i in range(20)], 9.5, 0.0, id="at the median"),
        pytest.param([float(i) for i in range(20)], 9.5 + 1.4826 * 5.0 * 4, 4.0, id="four robust deviations above"),
        pytest.param([float(i) for i in range(19)] + [1e9], 9.5 - 1.4826 * 5.0, -1.0, id="an outlier moves nothing"),
        pytest.param([float(i) for i in range(19)], 50.0, math.nan, id="too short a history"),
        pytest.param([3.0] * 20, 50.0, math.nan, id="a history without spread"),
        pytest.param([math.inf] * 20, 50.0, math.nan, id="an infinite history"),
        pytest.param([float(i) for i in range(20)], math.nan, math.nan, id="nan"),
    ],
)
def test_a_zscore_is_by_median_and_absolute_deviations(first: list[float], value: float, expected: float) -> None:
    assert baseline(first).zscore(value) == pytest.approx(expected, nan_ok=True)
