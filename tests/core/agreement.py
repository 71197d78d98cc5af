"""Comparisons of columns, within the stated tolerances or up to the order of summation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trmon_client.core.column_schema import COLUMNS, Reduction
from trmon_client.core.columns import Columns

SIZES = dict.fromkeys(("sum_d", "sum_ratio_dev", "prefix_min_d", "prefix_max_d"), "sum_abs_d")
"""Signed sums, and the column that gives the scale of their error."""


def agree(found: Mapping[str, Any], expected: dict[str, Any]) -> None:
    """Compare columns: counts exactly, sums to 1e-5 of their scale, extremes and labels to 1e-6.

    The absolute tolerance of binary KL is 1e-6.
    """
    for name, numbers in expected.items():
        want, got = np.asarray(numbers, np.float64), np.asarray(found[name], np.float64)
        if COLUMNS[name].reduction is Reduction.LABEL:
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6, err_msg=name)
            continue
        if COLUMNS[name].dtype == "i8":
            np.testing.assert_array_equal(got, want, err_msg=name)
            continue
        stem = name.split("_", 1)[1]
        size = np.abs(want)
        if stem in SIZES:
            size = np.maximum(size, np.abs(np.asarray(expected[name.replace(stem, SIZES[stem])])))
        relative = 1e-5 if "sum_" in name else 1e-6
        absolute = 1e-6 if "binary_kl" in name else 1e-30
        finite = np.isfinite(want)
        np.testing.assert_array_equal(got[~finite], want[~finite], err_msg=name)
        assert (np.abs(got[finite] - want[finite]) <= (relative * size + absolute)[finite]).all(), (name, got, want)


def same(found: Columns, expected: Columns, *, relative: float = 1e-12) -> None:
    """Compare two sets of columns up to the order of summation."""
    assert set(found) == set(expected)
    for name in expected:
        tolerance = 1e-6 if COLUMNS[name].dtype == "f4" else relative
        np.testing.assert_allclose(found[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=name)
    for pair, counts in expected.histograms.items():
        np.testing.assert_array_equal(found.histograms[pair], counts)


def equal(found: Columns, expected: Columns) -> None:
    """Check that two sets of columns are equal to the last bit, in the same dtypes."""
    assert set(found) == set(expected)
    for name in expected:
        assert np.asarray(found[name]).tobytes() == np.asarray(expected[name]).tobytes(), name
        assert found[name].dtype == expected[name].dtype, name
    for pair, counts in expected.histograms.items():
        np.testing.assert_array_equal(found.histograms[pair], counts)
