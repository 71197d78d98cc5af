"""Loops over the valid tokens of one sequence, up to 512 at a time, in arrays that stay in the first-level cache."""

from __future__ import annotations

import numpy as np

from trmon_client.core.arrays.backend import Array
from trmon_client.core.large_batches.compiled.column_indices import Sum
from trmon_client.core.large_batches.compiled.elementary import bits_of_float32, compiled, exp, expm1, log_of_ratio
from trmon_client.core.reduction.kl_estimators import MAX_ABS_EXPONENT, MIN_REST, NO_REST, TRUNCATION

SMALLEST_NORMAL = 2.3e-308
ABOVE_LOGP, ABOVE_SQ, BELOW_LOGP, BELOW_SQ = (
    int(Sum.above_logp),
    int(Sum.above_sq_logp),
    int(Sum.below_logp),
    int(Sum.below_sq_logp),
)
SUM_D, SUM_ABS_D, SUM_SQ_D = int(Sum.sum_d), int(Sum.sum_abs_d), int(Sum.sum_sq_d)
SUM_DEV, SUM_SQ_DEV, SUM_DEFICIT = int(Sum.sum_ratio_dev), int(Sum.sum_sq_ratio_dev), int(Sum.sum_ratio_deficit)
SUM_TRUNC, SUM_SQ_TRUNC = int(Sum.sum_trunc_ratio), int(Sum.sum_sq_trunc_ratio)
MAX_DIFF, SUM_DIFF, SUM_SQ_DIFF = int(Sum.max_prob_diff), int(Sum.sum_prob_diff), int(Sum.sum_sq_prob_diff)
SUM_P, SUM_Q, SUM_PP, SUM_QQ, SUM_PQ = (
    int(Sum.sum_p),
    int(Sum.sum_q),
    int(Sum.sum_pp),
    int(Sum.sum_qq),
    int(Sum.sum_pq),
)
SUM_KL, MAX_KL = int(Sum.sum_binary_kl), int(Sum.max_binary_kl)
PREFIX_MIN, PREFIX_MAX = int(Sum.prefix_min_d), int(Sum.prefix_max_d)


@compiled
def keep_valid(above: Array, below: Array, valid: Array, kept: tuple[Array, Array, Array]) -> int:
    """Copy the log-probs and the places of the valid tokens to the front of `kept`, and return their number."""
    kept_above, kept_below, places = kept
    n = 0
    for i in range(valid.size):
        n += valid[i]
    if n == valid.size:
        for i in range(n):
            kept_above[i], kept_below[i], places[i] = above[i], below[i], i
        return n
    n = 0
    for i in range(valid.size):
        kept_above[n], kept_below[n], places[n] = above[i], below[i], i
        n += valid[i]
    return n


@compiled
def add_log_ratios(above: Array, below: Array, d: Array, sums: Array) -> None:
    """Write the float32 log-ratios to d, and add the sums of both log-probs and of d."""
    sum_a = sum_aa = sum_b = sum_bb = sum_d = sum_abs = sum_sq = 0.0
    for i in range(d.size):
        a, b = np.float64(above[i]), np.float64(below[i])
        x = a - b
        d[i] = above[i] - below[i]
        sum_a += a
        sum_aa += a * a
        sum_b += b
        sum_bb += b * b
        sum_d += x
        sum_abs += abs(x)
        sum_sq += x * x
    sums[ABOVE_LOGP] += sum_a
    sums[ABOVE_SQ] += sum_aa
    sums[BELOW_LOGP] += sum_b
    sums[BELOW_SQ] += sum_bb
    sums[SUM_D] += sum_d
    sums[SUM_ABS_D] += sum_abs
    sums[SUM_SQ_D] += sum_sq


@compiled
def extremes(array: Array) -> tuple[float, float]:
    """Return the smallest and the largest element."""
    least, most = array[0], array[0]
    for i in range(array.size):
        least, most = min(least, array[i]), max(most, array[i])
    return least, most


@compiled
def fill_ratios(above: Array, below: Array, dev: Array, diff: Array, p: Array, q: Array) -> None:
    """Write rho - 1, p - q, p and q, for |d| <= 20 and log-probs <= 0."""
    for i in range(dev.size):
        a, b = np.float64(above[i]), np.float64(below[i])
        ratio, probability = expm1(a - b), exp(b)
        dev[i], q[i] = ratio, probability
        diff[i] = probability * ratio
        p[i] = probability + probability * ratio


@compiled
def fill_extreme_ratios(above: Array, below: Array, dev: Array, diff: Array, p: Array, q: Array) -> None:
    """Write rho - 1 of clamped d, p - q, p and q, both at most 1."""
    for i in range(dev.size):
        a, b = np.float64(above[i]), np.float64(below[i])
        dev[i] = expm1(min(max(a - b, -MAX_ABS_EXPONENT), MAX_ABS_EXPONENT))
        numerator, denominator = exp(min(a, 0.0)), exp(min(b, 0.0))
        diff[i] = numerator - denominator
        p[i], q[i] = numerator, denominator


@compiled
def largest_k3(dev: Array, d: Array) -> float:
    """Return the largest rho - 1 - d, at least 0."""
    most = 0.0
    for i in range(dev.size):
        most = max(most, dev[i] - d[i])
    return most


@compiled
def add_ratios(dev: Array, diff: Array, p: Array, q: Array, sums: Array) -> tuple[float, float]:
    """Add the sums of rho - 1, p, q and their products, and keep the largest |p - q|.

    Returns: the sums of rho - 1 and of its square over these tokens alone.
    """
    sum_dev = sum_sq_dev = deficit = sum_p = sum_q = sum_pp = sum_qq = sum_pq = sum_diff = sum_sq = most = 0.0
    for i in range(dev.size):
        ratio, difference, a, b = dev[i], diff[i], p[i], q[i]
        sum_dev += ratio
        sum_sq_dev += ratio * ratio
        deficit += max(-ratio, 0.0)
        sum_p += a
        sum_q += b
        sum_pp += a * a
        sum_qq += b * b
        sum_pq += a * b
        sum_diff += abs(difference)
        sum_sq += difference * difference
        most = max(most, abs(difference))
    sums[SUM_DEV] += sum_dev
    sums[SUM_SQ_DEV] += sum_sq_dev
    sums[SUM_DEFICIT] += deficit
    sums[SUM_P] += sum_p
    sums[SUM_Q] += sum_q
    sums[SUM_PP] += sum_pp
    sums[SUM_QQ] += sum_qq
    sums[SUM_PQ] += sum_pq
    sums[SUM_DIFF] += sum_diff
    sums[SUM_SQ_DIFF] += sum_sq
    sums[MAX_DIFF] = max(sums[MAX_DIFF], most)
    return sum_dev, sum_sq_dev


@compiled
def add_truncated(dev: Array, sums: Array) -> None:
    """Add the sums of the truncated ratio and of its square."""
    total = squares = 0.0
    for i in range(dev.size):
        ratio = min(dev[i], TRUNCATION - 1.0) + 1.0
        total += ratio
        squares += ratio * ratio
    sums[SUM_TRUNC] += total
    sums[SUM_SQ_TRUNC] += squares


@compiled
def fill_binary_kl(above: Array, below: Array, p: Array, q: Array, kl: Array) -> None:
    """Write KL(q||p) of {the token, the rest}. Source: formulas, section 4."""
    for i in range(kl.size):
        bounded_d = min(np.float64(above[i]), 0.0) - min(np.float64(below[i]), 0.0)
        rest_below, rest_above = 1.0 - q[i], max(1.0 - p[i], MIN_REST)
        rest = rest_below * log_of_ratio(max(rest_below, SMALLEST_NORMAL), rest_above)
        kl[i] = max((rest if rest_below > NO_REST else -rest_above) - q[i] * bounded_d, 0.0)


@compiled
def add_binary_kl(kl: Array, sums: Array) -> None:
    """Add the sum, and keep the largest."""
    total = most = 0.0
    for i in range(kl.size):
        total += kl[i]
        most = max(most, kl[i])
    sums[SUM_KL] += total
    sums[MAX_KL] = max(sums[MAX_KL], most)


@compiled
def add_running_sums(d: Array, total: float, sums: Array) -> float:
    """Keep the extremes of the running sums, which continue from `total`, and return the last one."""
    least, most = sums[PREFIX_MIN], sums[PREFIX_MAX]
    for i in range(d.size):
        total += d[i]
        least, most = min(least, total), max(most, total)
    sums[PREFIX_MIN], sums[PREFIX_MAX] = least, most
    return total


@compiled
def count_bins(d: Array, first_bins: Array, edges: Array, histogram: Array) -> None:
    """Count d in bins: its sign, exponent and three mantissa bits leave two bins to choose from."""
    for i in range(d.size):
        place = first_bins[bits_of_float32(d[i]) >> 20]
        histogram[i & 1, place + (d[i] >= edges[place])] += 1


@compiled
def count_above(d: Array, bound: float) -> int:
    """Return the number of elements above the bound."""
    n = 0
    for i in range(d.size):
        n += d[i] > bound
    return n


@compiled
def count_below(d: Array, bound: float) -> int:
    """Return the number of elements below the bound."""
    n = 0
    for i in range(d.size):
        n += d[i] < bound
    return n
