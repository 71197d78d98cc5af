"""The histogram of d in numpy and torch, with values on edges."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from trmon_client.core.column_schema import HISTOGRAM_EDGES, N_BINS
from trmon_client.core.histogram import abs_quantiles, histograms, percentile

KINDS = [np.asarray, torch.from_numpy]


def around(edge: float) -> tuple[float, float, float]:
    return float(np.nextafter(edge, -np.inf)), edge, float(np.nextafter(edge, np.inf))


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_on_an_edge_falls_into_the_bin_that_starts_there(kind: Any) -> None:
    d = np.array([[value for edge in HISTOGRAM_EDGES for value in around(edge)]])
    counts = histograms(kind(d), valid=kind(np.ones(d.shape[1], bool)))
    expected = np.full(N_BINS, 3)
    expected[0], expected[-1] = 1, 2
    np.testing.assert_array_equal(counts, [expected])


@pytest.mark.parametrize("kind", KINDS)
def test_invalid_tokens_are_subtracted_from_the_bin_around_zero(kind: Any) -> None:
    d = np.array([[0.0, 0.0, 5.0], [0.0, -1e-7, -1e9]])
    counts = np.asarray(histograms(kind(d), valid=kind(np.array([False, True, True]))))
    assert counts.dtype == np.int64
    assert [np.flatnonzero(row).tolist() for row in counts] == [[N_BINS // 2, 143], [0, N_BINS // 2]]
    assert HISTOGRAM_EDGES[142] <= 5.0 < HISTOGRAM_EDGES[143]
    assert counts.sum(axis=1).tolist() == [2, 2]


@pytest.mark.parametrize("n", [1, 2, 5, 64])
@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.95, 1.0])
def test_percentiles_interpolate_linearly_like_numpy(n: int, fraction: float) -> None:
    values = np.random.default_rng(n).normal(size=(3, n))
    assert percentile(values, fraction) == pytest.approx(np.quantile(values, fraction, axis=-1))


@pytest.mark.parametrize("fraction", [0.01, 0.5, 0.99, 0.999])
@pytest.mark.parametrize("scale", [1e-5, 1e-2, 1.0, 5.0])
def test_quantiles_of_the_histogram_are_accurate_to_a_bin(fraction: float, scale: float) -> None:
    d = np.random.default_rng(5).normal(0, scale, (1, 20_000))
    counts = histograms(d, valid=np.ones(d.shape[1], bool))
    found = abs_quantiles(counts, [fraction], largest=np.abs(d).max(axis=1))
    width = 10**0.1 - 1
    assert found == [pytest.approx([np.quantile(np.abs(d), fraction)], rel=width, abs=1e-6)]


@pytest.mark.parametrize("fraction", [0.0, 0.25, 0.5, 0.99, 1.0])
def test_quantiles_of_few_tokens_are_interpolated_between_them(fraction: float) -> None:
    d = np.array([[0.01, -1.0, 20.0]])
    found = abs_quantiles(histograms(d, valid=np.ones(3, bool)), [fraction], largest=np.array([20.0]))
    assert found == [pytest.approx([np.quantile(np.abs(d), fraction)], rel=0.13)]


@pytest.mark.parametrize(
    ("d", "fraction", "least", "most"),
    [([-0.3], 0.99, 0.3, 0.3), ([0.5, 0.5, -0.5], 0.999, 0.4, 0.5), ([900.0, -900.0], 0.99, 32.0, 900.0)],
    ids=["one token", "no more than the largest", "the overflow bin"],
)
def test_quantiles_end_at_the_largest_value(d: list[float], fraction: float, least: float, most: float) -> None:
    counts = histograms(np.array([d]), valid=np.ones(len(d), bool))
    assert least <= abs_quantiles(counts, [fraction], largest=np.array([most]))[0][0] <= most


def test_an_empty_histogram_has_no_quantile() -> None:
    assert math.isnan(abs_quantiles(np.zeros((1, N_BINS), np.int64), [0.99], largest=np.array([math.nan]))[0][0])
