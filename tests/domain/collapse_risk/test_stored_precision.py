"""Rounding to a number of significant bits: half to even, of float32, and the same again when it is repeated."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trmon.domain.collapse_risk.risk_inputs import COARSE, StoredPrecision


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
    rounded = COARSE.rounded(np.array([math.nan, math.inf, -math.inf, 1e300]))
    np.testing.assert_array_equal(rounded, np.array([math.nan, math.inf, -math.inf, math.inf], np.float32))


def test_each_value_may_have_its_own_number_of_bits() -> None:
    coarse, fine = StoredPrecision([8, 16]).rounded(np.array([0.999969, 0.999969]))
    assert coarse == 1.0
    assert abs(fine - 0.999969) < 2.0**-16
