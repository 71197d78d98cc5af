"""The fit: it finds the demands that made the usage, none below zero, and the best ones by an independent search."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trmon.domain.capacity.demand_fit import fit_demands, nonnegative_least_squares


def test_demands_are_found_from_usage_without_noise() -> None:
    rates = np.array([[10.0, 1.0], [100.0, 1.0], [100.0, 50.0], [5.0, 20.0]])
    fit = fit_demands(rates, rates @ np.array([0.001, 0.02]))
    assert fit.demands == pytest.approx([0.001, 0.02])
    assert fit.relative_error == pytest.approx(0, abs=1e-9)


def test_relative_errors_count_so_a_small_usage_weighs_as_much_as_a_large_one() -> None:
    rates = np.array([[1.0], [1000.0]])
    fit = fit_demands(rates, np.array([2.0, 1000.0]))
    # (x / 2 - 1)^2 + (x - 1)^2 is least at 1.2.
    assert fit.demands == pytest.approx([1.2])
    assert fit.relative_error == pytest.approx(np.sqrt((0.4**2 + 0.2**2) / 2))


def test_work_that_no_sample_has_needs_nothing() -> None:
    fit = fit_demands(np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([3.0, 6.0]))
    assert fit.demands == pytest.approx([3.0, 0.0])


@given(seed=st.integers(0, 10_000), n=st.integers(1, 6))
def test_no_demand_is_negative_and_none_can_be_changed_for_the_better(seed: int, n: int) -> None:
    random = np.random.default_rng(seed)
    matrix, target = random.normal(size=(12, n)), random.normal(size=12)
    solution = nonnegative_least_squares(matrix, target)
    gradient = matrix.T @ (matrix @ solution - target)
    assert (solution >= 0).all()
    # The conditions of Karush, Kuhn and Tucker, which are sufficient for a convex problem.
    assert (gradient >= -1e-8).all()
    assert gradient[solution > 0] == pytest.approx(0, abs=1e-8)
