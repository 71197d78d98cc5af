"""The histogram of d in numpy and torch, with values on edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from trmon_client.core.column_schema import HISTOGRAM_EDGES, N_BINS
from trmon_client.core.histogram import histograms

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
