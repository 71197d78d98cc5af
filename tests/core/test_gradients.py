"""Signal, noise, bias and progress of gradients against an enumeration of every batch that can be drawn."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from trmon_client.core.gradients import cosine, gradient_moments, progress_proxy, progress_terms

OUTCOMES = np.array([[1.0, 0.0, 2.0], [-1.0, 3.0, 0.5], [0.5, 0.5, -1.0]])
"""The gradients that a part may have."""
CHANCES = np.array([0.5, 0.3, 0.2])
TRUE_GRADIENTS = np.array([[0.5, 1.0, 1.0], [0.7, 0.2, 0.4]])
"""Unbiased gradients of J, equally likely."""


def batches(outcomes: np.ndarray, chances: np.ndarray, k: int) -> list[tuple[float, np.ndarray]]:
    """Return every batch of k parts with its probability."""
    drawn = itertools.product(range(len(outcomes)), repeat=k)
    return [(float(np.prod(chances[list(of)])), outcomes[list(of)]) for of in drawn]


def moments_of(outcomes: np.ndarray, chances: np.ndarray) -> tuple[np.ndarray, float]:
    """Return the expectation and the trace of the covariance."""
    mean = chances @ outcomes
    return mean, float(chances @ ((outcomes - mean) ** 2).sum(1))


@pytest.mark.parametrize("k", [2, 3, 4])
def test_signal_and_noise_have_their_expectation_over_every_batch(k: int) -> None:
    mean, noise = moments_of(OUTCOMES, CHANCES)
    found = [(chance, gradient_moments(parts)) for chance, parts in batches(OUTCOMES, CHANCES, k)]
    assert sum(chance * one.signal for chance, one in found) == pytest.approx(mean @ mean, rel=1e-12)
    assert sum(chance * one.noise for chance, one in found) == pytest.approx(noise, rel=1e-12)


def test_the_snr_is_the_signal_over_the_variance_of_the_mean() -> None:
    found = gradient_moments(OUTCOMES)
    pairs = [OUTCOMES[i] @ OUTCOMES[j] for i in range(3) for j in range(3) if i != j]
    assert found.signal == pytest.approx(np.mean(pairs), rel=1e-12)
    assert found.snr == pytest.approx(np.mean(pairs) / (OUTCOMES.var(0, ddof=1).sum() / 3), rel=1e-12)


def test_its_terms_have_their_expectation_over_every_batch() -> None:
    chances = np.array([0.5, 0.5])
    gradient, _ = moments_of(TRUE_GRADIENTS, chances)
    mean, noise = moments_of(OUTCOMES, CHANCES)
    expected = {"inner_product": gradient @ mean, "variance": noise / 2, "squared_bias": ((mean - gradient) ** 2).sum()}
    for name, value in expected.items():
        averaged = sum(
            p * q * getattr(progress_terms(reference, parts), name)
            for p, reference in batches(TRUE_GRADIENTS, chances, 2)
            for q, parts in batches(OUTCOMES, CHANCES, 2)
        )
        assert averaged == pytest.approx(value, rel=1e-12), name


def test_a_known_gradient_is_a_vector_and_adds_no_noise() -> None:
    gradient = TRUE_GRADIENTS[0]
    mean, noise = moments_of(OUTCOMES, CHANCES)
    expected = {"inner_product": gradient @ mean, "variance": noise / 3, "squared_bias": ((mean - gradient) ** 2).sum()}
    for name, value in expected.items():
        averaged = sum(p * getattr(progress_terms(gradient, parts), name) for p, parts in batches(OUTCOMES, CHANCES, 3))
        assert averaged == pytest.approx(value, rel=1e-12), name
    assert progress_proxy(np.array([3.0, 4.0]), np.array([[4.0, 4.0], [2.0, 4.0]])) == pytest.approx(25**2 / 1)


@pytest.mark.parametrize("shapes", [((2,), (3, 4)), ((3, 2), (3, 4)), ((4,), (4,)), ((), (3, 4))], ids=str)
def test_gradients_that_do_not_fit_are_refused(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="do not fit; expected"):
        progress_proxy(np.ones(shapes[0]), np.ones(shapes[1]))


def test_noise_and_bias_lower_the_progress() -> None:
    gradient = np.array([[3.0, 4.0], [3.0, 4.0]])
    biased = np.array([[3.0, 1.0], [3.0, 1.0]])
    assert progress_proxy(gradient, biased) == pytest.approx((9 + 4) ** 2 / 3**2)
    noisy = np.array([[4.0, 4.0], [2.0, 4.0]])
    assert progress_proxy(gradient, noisy) == pytest.approx(25**2 / 1)
    noisier = np.array([[5.0, 4.0], [1.0, 4.0]])
    assert progress_proxy(gradient, noisier) == pytest.approx(25**2 / 4)
    assert math.isnan(progress_proxy(gradient, gradient))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [([1, 2], [2, 4], 1.0), ([1, 2], [-1, -2], -1.0), ([1, 0], [0, 3], 0.0), ([0, 0], [1, 1], math.nan)],
)
def test_the_cosine_is_that_of_the_angle(first: list[float], second: list[float], expected: float) -> None:
    assert cosine(np.array(first, float), np.array(second, float)) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_has_no_cosine(bad: float) -> None:
    assert math.isnan(cosine(np.array([bad, 1.0]), np.ones(2)))


def test_one_part_has_no_moments() -> None:
    found = gradient_moments(OUTCOMES[:1])
    assert math.isnan(found.signal)
    assert math.isnan(found.snr)
    assert math.isnan(gradient_moments(OUTCOMES[[0, 0]]).snr)
