"""Error bounds against golden values and their laws; `tests/proof` checks the bounds themselves."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core import golden
from tests.core.example_columns import as_torch, of_log_ratios, with_columns, with_kl
from trmon_client.core.bounds import UNKNOWN, batch_bounds, error_bounds, max_delta

horizons = st.integers(1, 100_000)
kls = st.floats(1e-9, 10)


def test_bounds_equal_the_golden_values() -> None:
    for case in golden.load("bounds"):
        horizon, kl_seq = case["horizon"], case["kl_seq"]
        bounds = error_bounds(horizon=horizon, kl_max=case["kl_max"], kl_seq=kl_seq)
        for kind in ("trpo", "pinsker_marginal", "mixed", "adaptive"):
            assert getattr(bounds, kind) == pytest.approx(case[kind], rel=1e-12), (horizon, kind)
        assert bounds.vacuous is case["vacuous"], horizon
        delta = max_delta(horizon=horizon, budget=0.5, kl_seq=kl_seq)
        assert delta == pytest.approx(float(case["max_delta_for_budget_half"]), rel=1e-12), horizon


def test_zero_times_infinity_is_infinity() -> None:
    assert error_bounds(horizon=8, kl_max=0.0, kl_seq=math.inf).mixed == math.inf
    assert error_bounds(horizon=8, kl_max=math.inf, kl_seq=0.0).mixed == math.inf


def test_sampled_kl_asserts_nothing_and_lower_bounds_assert_only_vacuousness() -> None:
    large = {"horizon": 4096, "kl_max": 0.1, "kl_seq": 1.0}
    small = {"horizon": 2, "kl_max": 1e-6, "kl_seq": 1e-6}
    assert error_bounds(**large, kl_is="sampled").vacuous is None
    assert error_bounds(**large, kl_is="lower_bound").vacuous is True
    assert error_bounds(**small, kl_is="lower_bound").vacuous is None
    assert math.isnan(error_bounds(**large, kl_is="lower_bound").adaptive)


def test_an_unknown_kl_gives_an_unknown_bound() -> None:
    bounds = error_bounds(horizon=8, kl_max=0.1, kl_seq=math.nan)
    assert math.isnan(bounds.adaptive)
    assert bounds.vacuous is None


def test_the_reward_range_scales_the_bounds_and_the_limit_of_vacuousness() -> None:
    unit, tenfold = (error_bounds(horizon=64, kl_max=0.001, kl_seq=0.01, reward_range=r) for r in (1.0, 10.0))
    assert tenfold.adaptive == pytest.approx(10 * unit.adaptive)
    assert tenfold.vacuous is unit.vacuous is False


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"horizon": 0}, "horizon must be 1"),
        ({"kl_max": -1.0}, "kl_max must be 0"),
        ({"kl_seq": -1.0}, "kl_seq must be 0"),
        ({"reward_range": 0.0}, "reward_range must be above 0"),
    ],
)
def test_arguments_out_of_range_are_rejected(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        error_bounds(**{"horizon": 4, "kl_max": 0.1, "kl_seq": 0.1, **wrong})


@pytest.mark.parametrize("budget", [0.0, -1.0])
def test_a_budget_of_zero_or_less_allows_no_divergence(budget: float) -> None:
    assert max_delta(horizon=8, budget=budget, kl_seq=0.0) == 0.0


def test_a_nan_budget_is_rejected() -> None:
    with pytest.raises(ValueError, match="budget"):
        max_delta(horizon=8, budget=math.nan)


def test_without_a_sequence_kl_max_delta_depends_on_the_horizon_only() -> None:
    assert max_delta(horizon=4096, budget=0.5) == pytest.approx(3 * 0.5 / (4 * 4096**1.5))
    assert max_delta(horizon=4096, budget=0.5, kl_seq=math.inf) == max_delta(horizon=4096, budget=0.5)


@settings(max_examples=100)
@given(horizons, kls, kls, st.floats(1, 4))
def test_bounds_grow_with_divergence_and_length(horizon: int, kl_max: float, kl_seq: float, factor: float) -> None:
    base = error_bounds(horizon=horizon, kl_max=kl_max, kl_seq=kl_seq)
    for grown in (
        error_bounds(horizon=horizon * 2, kl_max=kl_max, kl_seq=kl_seq),
        error_bounds(horizon=horizon, kl_max=kl_max * factor, kl_seq=kl_seq),
        error_bounds(horizon=horizon, kl_max=kl_max, kl_seq=kl_seq * factor),
    ):
        assert grown.trpo >= base.trpo
        assert grown.adaptive >= base.adaptive


@settings(max_examples=100)
@given(horizons, st.floats(1e-6, 10), kls)
def test_max_delta_uses_exactly_its_budget(horizon: int, budget: float, kl_seq: float) -> None:
    delta = max_delta(horizon=horizon, budget=budget, kl_seq=kl_seq)
    assert error_bounds(horizon=horizon, kl_max=delta, kl_seq=kl_seq).adaptive == pytest.approx(budget, rel=1e-9)


def test_a_batch_uses_its_longest_response_and_its_largest_kl() -> None:
    columns = with_kl(of_log_ratios([0.0] * 3, [0.0], []), [0.25, 0.5, 9.0])
    assert batch_bounds(columns) == error_bounds(horizon=3, kl_max=0.5, kl_seq=0.375)


def test_bounds_of_accepted_sequences_ignore_the_others_and_cap_the_kl_at_delta() -> None:
    columns = with_kl(of_log_ratios([0.0] * 3, [0.0]), [0.1, 0.3])
    accepted = np.array([False, True])
    bounds = batch_bounds(columns, accepted=accepted, delta=0.05)
    assert bounds == error_bounds(horizon=1, kl_max=0.05, kl_seq=0.3)


def test_bounds_use_the_minimum_of_the_two_maxima_not_the_maximum_of_the_minima() -> None:
    columns = with_kl(of_log_ratios([0.0] * 3, [0.0]), [0.25, 0.0625])
    columns = with_columns(columns, {"max_reverse_kl": np.array([0.03125, 0.125], np.float32)})
    assert batch_bounds(columns) == error_bounds(horizon=3, kl_max=0.125, kl_seq=0.15625)


def test_a_nan_kl_makes_the_bounds_of_a_batch_unknown() -> None:
    bounds = batch_bounds(with_kl(of_log_ratios([0.0], [0.0]), [0.25, math.nan]))
    assert math.isnan(bounds.adaptive)
    assert bounds.vacuous is None


def test_the_bounds_of_a_batch_scale_with_the_reward_range() -> None:
    columns = with_kl(of_log_ratios([0.0] * 3), [0.25])
    assert batch_bounds(columns, reward_range=10.0).trpo == pytest.approx(10 * batch_bounds(columns).trpo)


def test_accepted_tensors_give_the_same_bounds_as_arrays() -> None:
    columns = with_kl(of_log_ratios([0.0] * 3, [0.0]), [0.1, 0.3])
    expected = batch_bounds(columns, accepted=np.array([True, False]))
    assert batch_bounds(as_torch(columns), accepted=torch.tensor([True, False])) == expected


def test_a_batch_without_kl_or_without_a_sequence_has_unknown_bounds() -> None:
    columns = of_log_ratios([0.0])
    assert batch_bounds(columns) is UNKNOWN
    assert batch_bounds(with_kl(columns, [0.1]), accepted=np.array([False])) is UNKNOWN
    assert batch_bounds(with_kl(of_log_ratios([]), [0.0])) is UNKNOWN
