"""Exponentials and logarithms that LLVM vectorises, unlike calls of the C library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

compiled = njit(nogil=True, error_model="numpy", cache=True, fastmath=False)
"""Compiles a kernel; without fast-math, so that NaN, infinities and the order of additions are as written."""

LOG2_E = 1.4426950408889634
LN2 = 0.6931471805599453
LN2_HIGH, LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
"""ln 2 in two parts; products of the first with integers below 2^11 are exact."""
SHIFT = 1.5 * 2.0**52
"""Added to a float64 it leaves the nearest integer in the lowest bits."""
SHIFT_BITS = int(np.float64(SHIFT).view(np.int64))
MANTISSA, EXPONENT_OF_1 = (1 << 52) - 1, 1023 << 52
LOWEST_EXPONENT = -700.0
"""Below it exp(x) is taken as exp(-700), about 1e-304: the exponent bits would wrap around."""


def _bit_cast(source: Any, target: Any, llvm_type: Any) -> Callable[..., Any]:
    @intrinsic
    def cast(_typing: Any, _value: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            return builder.bitcast(values[0], llvm_type)

        return target(source), generate

    return cast


bits_of_float64 = _bit_cast(types.float64, types.int64, ir.IntType(64))
float64_of_bits = _bit_cast(types.int64, types.float64, ir.DoubleType())
bits_of_float32 = _bit_cast(types.float32, types.uint32, ir.IntType(32))


@compiled
def reduced_exponential(x: float) -> tuple[float, float]:
    """Return expm1(r) and 2^n, where x = n ln 2 + r and |r| <= ln 2 / 2; Taylor's series to r^13 / 13!."""
    shifted = x * LOG2_E + SHIFT
    n = shifted - SHIFT
    r = (x - n * LN2_HIGH) - n * LN2_LOW
    series = 1.6059043836821613e-10
    series = series * r + 2.08767569878681e-09
    series = series * r + 2.505210838544172e-08
    series = series * r + 2.755731922398589e-07
    series = series * r + 2.7557319223985893e-06
    series = series * r + 2.48015873015873e-05
    series = series * r + 0.0001984126984126984
    series = series * r + 0.001388888888888889
    series = series * r + 0.008333333333333333
    series = series * r + 0.041666666666666664
    series = series * r + 0.16666666666666666
    series = series * r + 0.5
    return r + r * r * series, float64_of_bits((bits_of_float64(shifted) - SHIFT_BITS + 1023) << 52)


@compiled
def expm1(x: float) -> float:
    """Return exp(x) - 1 for |x| <= 700."""
    fraction, power = reduced_exponential(x)
    return power * fraction + (power - 1.0)


@compiled
def exp(x: float) -> float:
    """Return exp(x) for x <= 700."""
    fraction, power = reduced_exponential(max(x, LOWEST_EXPONENT))
    return power * fraction + power


@compiled
def log_of_ratio(above: float, below: float) -> float:
    """Return log(above / below) of normal positive numbers, by 2 artanh of the mantissas' relative difference."""
    bits_above, bits_below = bits_of_float64(above), bits_of_float64(below)
    exponent = float64_of_bits((bits_above >> 52) - (bits_below >> 52) + SHIFT_BITS) - SHIFT
    a = float64_of_bits((bits_above & MANTISSA) | EXPONENT_OF_1)
    b = float64_of_bits((bits_below & MANTISSA) | EXPONENT_OF_1)
    is_high, is_low = a > b * 1.4142135623730951, a < b * 0.7071067811865476
    a = a * 0.5 if is_high else a
    b = b * 0.5 if is_low else b
    exponent = exponent + 1.0 if is_high else exponent
    exponent = exponent - 1.0 if is_low else exponent
    s = (a - b) / (a + b)
    z = s * s
    series = 1.0 / 21
    series = series * z + 1.0 / 19
    series = series * z + 1.0 / 17
    series = series * z + 1.0 / 15
    series = series * z + 1.0 / 13
    series = series * z + 1.0 / 11
    series = series * z + 1.0 / 9
    series = series * z + 1.0 / 7
    series = series * z + 1.0 / 5
    series = series * z + 1.0 / 3
    return 2.0 * (s + s * z * series) + exponent * LN2
