"""The kernels that reduce a block: its valid tokens, the columns of one pair, and the comparison of two pairs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, types

from trmon_client.core.arrays.backend import Array
from trmon_client.core.columns.histogram import FLOAT32_EDGES
from trmon_client.core.inputs.token_validity import MAX_LOGPROB, MIN_LOGPROB
from trmon_client.core.large_batches.compiled import token_loops as loops
from trmon_client.core.large_batches.compiled.column_indices import Count, Sum
from trmon_client.core.large_batches.compiled.elementary import compiled, expm1
from trmon_client.core.reduction.block_reduction import SATURATED_BELOW
from trmon_client.core.reduction.kl_estimators import BAND_HIGH, BAND_LOW, MAX_ABS_EXPONENT, TRUNCATION

CHUNK = 512
"""Tokens at a time: nine arrays of them fit the first-level cache."""
LOW_RATIO = -4.0
"""If some d is below it, sums of rho from those of rho - 1 could lose digits."""
HIGHEST, LOWEST = np.float32(MAX_LOGPROB), np.float32(MIN_LOGPROB)
LOG_LOW, LOG_HIGH = np.float32(math.log(BAND_LOW)), np.float32(math.log(BAND_HIGH))
LOG_TRUNCATION, CLAMP = np.float32(math.log(TRUNCATION)), np.float32(MAX_ABS_EXPONENT)
SATURATED = np.float32(SATURATED_BELOW)
MIN_D, MAX_D, MAX_K3 = int(Sum.min_d), int(Sum.max_d), int(Sum.max_k3)
N_LOW, N_HIGH, N_TRUNC, N_CLAMPED = (
    int(Count.n_band_low),
    int(Count.n_band_high),
    int(Count.n_trunc),
    int(Count.n_clamped),
)
N_ABOVE, N_BELOW, N_ZERO, N_SATURATED = (
    int(Count.n_above_clip),
    int(Count.n_below_clip),
    int(Count.n_zero),
    int(Count.n_saturated),
)
ARGMAX = int(Count.argmax_abs_d)


def _read(element: Any) -> Any:
    return types.Array(element, 2, "C", readonly=True)


def _kernel(*arguments: Any) -> Any:
    """Return a decorator that compiles at import, or takes the machine code from the cache."""
    return njit(types.void(*arguments), nogil=True, error_model="numpy", cache=True, fastmath=False)


@_kernel(_read(types.float32), types.boolean[:, ::1])
def exclude_invalid(logp: Array, valid: Array) -> None:
    """Clear the flags of tokens whose log-prob is out of bounds; NaN fails every comparison."""
    for row in range(valid.shape[0]):
        for i in range(valid.shape[1]):
            valid[row, i] &= (logp[row, i] <= HIGHEST) & (logp[row, i] > LOWEST)


@_kernel(_read(types.float32), _read(types.float32), _read(types.float32), _read(types.boolean), types.float64[::1])
def add_ratio_differences(new: Array, old: Array, rollout: Array, valid: Array, sums: Array) -> None:
    """Write the sums of |rho_total - rho_mismatch| of each sequence."""
    terms = np.empty(valid.shape[1])
    for row in range(valid.shape[0]):
        for i in range(terms.size):
            below = np.float64(rollout[row, i])
            total = np.float64(new[row, i]) - below if valid[row, i] else 0.0
            mismatch = np.float64(old[row, i]) - below if valid[row, i] else 0.0
            total = min(max(total, -MAX_ABS_EXPONENT), MAX_ABS_EXPONENT)
            mismatch = min(max(mismatch, -MAX_ABS_EXPONENT), MAX_ABS_EXPONENT)
            terms[i] = abs(expm1(total) - expm1(mismatch))
        sums[row] = terms.sum()


@compiled
def _count(d: Array, least: float, most: float, clip_low: float, clip_high: float, counts: Array) -> None:
    """Count the tokens beyond each bound that an extreme exceeds."""
    if most > LOG_HIGH:
        counts[N_HIGH] += loops.count_above(d, LOG_HIGH)
    if most > LOG_TRUNCATION:
        counts[N_TRUNC] += loops.count_above(d, LOG_TRUNCATION)
    if most > CLAMP:
        counts[N_CLAMPED] += loops.count_above(d, CLAMP)
    if most > clip_high:
        counts[N_ABOVE] += loops.count_above(d, clip_high)
    if least < LOG_LOW:
        counts[N_LOW] += loops.count_below(d, LOG_LOW)
    if least < -CLAMP:
        counts[N_CLAMPED] += loops.count_below(d, -CLAMP)
    if least < clip_low:
        counts[N_BELOW] += loops.count_below(d, clip_low)


@compiled
def _count_zeros(above: Array, below: Array, counts: Array) -> None:
    for i in range(below.size):
        if below[i] == 0:
            counts[N_ZERO] += 1
            counts[N_SATURATED] += above[i] < SATURATED


@compiled
def _place(d: Array, size: float, places: Array) -> int:
    """Return the place of the first element of this absolute value."""
    for i in range(d.size):
        if abs(d[i]) == size:
            return places[i]
    return -1


@_kernel(
    *(_read(types.float32), _read(types.float32), _read(types.boolean), types.float32, types.float32),
    *(types.int64[::1], types.float32[::1], types.float64[:, ::1], types.int64[:, ::1], types.int64[:, ::1]),
)
def reduce_pair(
    above: Array,
    below: Array,
    valid: Array,
    clip_low: float,
    clip_high: float,
    first_bins: Array,
    edges: Array,
    sums: Array,
    counts: Array,
    histogram: Array,
) -> None:
    """Write the columns of one pair and add to its histogram, kept in two rows.

    Args: above, below: the log-probs of numerator and denominator; sums, counts: [rows, columns] by `Sum` and `Count`.
    Source: formulas, section 3.
    """
    singles = np.empty((3, CHUNK), np.float32)
    a_chunk, b_chunk, d_chunk = singles[0], singles[1], singles[2]
    chunks = np.empty((5, CHUNK))
    dev_chunk, diff_chunk, kl_chunk, p_chunk, q_chunk = chunks[0], chunks[1], chunks[2], chunks[3], chunks[4]
    places = np.empty(CHUNK, np.int64)
    for row in range(valid.shape[0]):
        found, tally = sums[row], counts[row]
        found[:] = 0.0
        tally[:] = 0
        tally[ARGMAX] = -1
        found[loops.PREFIX_MIN], found[loops.PREFIX_MAX] = np.inf, -np.inf
        found[MIN_D], found[MAX_D] = np.inf, -np.inf
        largest, total = np.float32(-1.0), 0.0
        for start in range(0, valid.shape[1], CHUNK):
            end = min(start + CHUNK, valid.shape[1])
            chunk = above[row, start:end], below[row, start:end], valid[row, start:end]
            # The loops that follow need no mask.
            n = loops.keep_valid(*chunk, (a_chunk, b_chunk, places))
            if n == 0:
                continue
            a, b, d = a_chunk[:n], b_chunk[:n], d_chunk[:n]
            dev, diff, p, q, kl = dev_chunk[:n], diff_chunk[:n], p_chunk[:n], q_chunk[:n], kl_chunk[:n]
            loops.add_log_ratios(a, b, d, found)
            least, most = loops.extremes(d)
            found[MIN_D], found[MAX_D] = min(found[MIN_D], least), max(found[MAX_D], most)
            if max(-least, most) > largest:
                largest = max(-least, most)
                tally[ARGMAX] = start + _place(d, largest, places)
            _count(d, least, most, clip_low, clip_high, tally)
            highest_a, highest_b = loops.extremes(a)[1], loops.extremes(b)[1]
            if highest_b >= 0:
                _count_zeros(a, b, tally)
            if max(-least, most) > CLAMP or max(highest_a, highest_b) > 0:
                loops.fill_extreme_ratios(a, b, dev, diff, p, q)
                found[MAX_K3] = max(found[MAX_K3], loops.largest_k3(dev, d))
            else:
                loops.fill_ratios(a, b, dev, diff, p, q)
                for x in (np.float64(least), np.float64(most)):
                    found[MAX_K3] = max(found[MAX_K3], expm1(x) - x)
            # Not the growth of the running sums: after a chunk with an outlier of e^40 it has no digits left.
            sum_dev, sum_sq_dev = loops.add_ratios(dev, diff, p, q, found)
            if most > LOG_TRUNCATION or least < LOW_RATIO:
                loops.add_truncated(dev, found)
            else:
                found[loops.SUM_TRUNC] += n + sum_dev
                found[loops.SUM_SQ_TRUNC] += n + 2.0 * sum_dev + sum_sq_dev
            loops.fill_binary_kl(a, b, p, q, kl)
            loops.add_binary_kl(kl, found)
            total = loops.add_running_sums(d, total, found)
            loops.count_bins(d, first_bins, edges, histogram)
        if largest <= CLAMP:
            # The extremes of d tell it more accurately.
            found[MAX_K3] = np.nan


def _first_bins() -> Array:
    """Return the bin of the smallest float32 of each combination of sign, exponent and three mantissa bits, [4096]."""
    ends = (np.arange(4096, dtype=np.uint32)[:, None] << 20) | np.array([0, 0xFFFFF], np.uint32)
    # Keys of NaN are never looked up.
    return np.searchsorted(FLOAT32_EDGES, ends.view(np.float32).min(-1), side="right")


FIRST_BINS = _first_bins()
EDGES = np.append(FLOAT32_EDGES, np.float32(np.inf))
