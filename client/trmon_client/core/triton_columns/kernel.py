"""The Triton kernel of the columns: one program per tile of a sequence reads each of its tokens once.

This module imports Triton, so it is imported only on request. All terms are float64, with the formulas of
`reduction.kl_estimators`; terms are exactly 0 at tokens that are not valid. A program stores its sums and extremes,
which `reduce` joins over the tiles of a sequence.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call, untyped-decorator, no-untyped-def"

from __future__ import annotations

import triton
import triton.language as tl

from trmon_client.core.columns.schema import HISTOGRAM_EDGES, N_BINS
from trmon_client.core.inputs import token_validity
from trmon_client.core.reduction import block_reduction, kl_estimators

_MAX_LOGPROB = tl.constexpr(token_validity.MAX_LOGPROB)
_MIN_LOGPROB = tl.constexpr(token_validity.MIN_LOGPROB)
_SATURATED_BELOW = tl.constexpr(block_reduction.SATURATED_BELOW)
_MAX_ABS_EXPONENT = tl.constexpr(kl_estimators.MAX_ABS_EXPONENT)
_BAND_LOW = tl.constexpr(kl_estimators.BAND_LOW - 1.0)
_BAND_HIGH = tl.constexpr(kl_estimators.BAND_HIGH - 1.0)
_TRUNCATION = tl.constexpr(kl_estimators.TRUNCATION - 1.0)
_MIN_REST = tl.constexpr(kl_estimators.MIN_REST)
_NO_REST = tl.constexpr(kl_estimators.NO_REST)
_SERIES_BELOW = tl.constexpr(kl_estimators.SERIES_BELOW)
_EXPM1_SERIES_BELOW = tl.constexpr(2.0**-6)
"""Below it exp(x) - 1 would lose more digits than its series of seven terms."""
_N_EDGES = tl.constexpr(len(HISTOGRAM_EDGES))
_N_BINS = tl.constexpr(N_BINS)
_N_HALVINGS = tl.constexpr(N_BINS.bit_length())
_N_SLOTS = tl.constexpr(1 << N_BINS.bit_length())
"""Counters of a tile: the bins, and at least one for tokens that are not valid."""
_INFINITY = tl.constexpr(float("inf"))

SEQUENCE_ROWS: tuple[str, ...] = (
    *("n_tokens", "n_invalid", "n_mu_zero", "n_saturated", "n_clamped", "n_clipped", "n_leaked", "n_leaked_high"),
    *("sum_first", "sum_sq_first", "sum_second", "sum_sq_second", "sum_third", "sum_sq_third"),
    *("sum_abs_is_dev", "sum_advantage", "max_abs_d", "argmax_abs_d"),
)
"""What a program stores for the sequence, in order; all but the last two are sums."""

PAIR_COUNTS: tuple[str, ...] = ("n_band_low", "n_band_high", "n_trunc")
PAIR_SUMS: tuple[str, ...] = (
    *("sum_d", "sum_abs_d", "sum_sq_d", "sum_ratio_dev", "sum_sq_ratio_dev", "sum_ratio_deficit", "sum_k3"),
    *("sum_trunc_ratio", "sum_sq_trunc_ratio", "sum_prob_diff", "sum_sq_prob_diff"),
    *("sum_p", "sum_q", "sum_pp", "sum_qq", "sum_pq", "sum_binary_kl"),
)
PAIR_MINIMA: tuple[str, ...] = ("min_d", "prefix_min_d")
PAIR_MAXIMA: tuple[str, ...] = ("max_d", "prefix_max_d", "max_k3", "max_prob_diff", "max_binary_kl")
PAIR_ROWS: tuple[str, ...] = PAIR_COUNTS + PAIR_SUMS + PAIR_MINIMA + PAIR_MAXIMA
"""What a program stores for each pair, in order; prefixes are of the tile."""
_N_PAIR_ROWS = tl.constexpr(len(PAIR_ROWS))


# The code below is compiled by Triton, which supports no keyword-only arguments. A policy is the tuple of its log-prob,
# the same bounded by 0, its probability, the probability of the rest, and the logarithm of that.


@triton.jit
def columns_kernel(
    first_ptr, second_ptr, third_ptr, mask_ptr, advantage_ptr, edges_ptr, sequence_ptr, pair_ptr, count_ptr,
    n_sequences, horizon,
    first_row, first_step, second_row, second_step, third_row, third_step,
    mask_row, mask_step, advantage_row, advantage_step,
    THREE: tl.constexpr, HAS_ADVANTAGES: tl.constexpr, CLIP_LOW: tl.constexpr, CLIP_HIGH: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """Store the rows of a tile: mu, pi_old and pi are first, second and third; of two policies the third is unused."""
    row, tile, n_tiles = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    index = (tile * TILE + tl.arange(0, TILE)).to(tl.int64)
    counts = index < horizon
    counts = counts & (tl.load(mask_ptr + row * mask_row + index * mask_step, mask=counts, other=0) != 0)
    first = _load(first_ptr + row * first_row + index * first_step, counts)
    second = _load(second_ptr + row * second_row + index * second_step, counts)
    valid = counts & _is_sound(first) & _is_sound(second)
    third = second
    if THREE:
        third = _load(third_ptr + row * third_row + index * third_step, counts)
        valid = valid & _is_sound(third)

    stride = n_sequences.to(tl.int64) * n_tiles
    sequence_ptr += row * n_tiles + tile
    pair_ptr += row * n_tiles + tile
    one, two, three = _policy(first, valid), _policy(second, valid), _policy(third, valid)
    d, dev = _store_pair(pair_ptr, stride, edges_ptr, count_ptr, two, one, valid)
    clipped = dev
    if THREE:
        pair_ptr += _N_PAIR_ROWS * stride
        _, clipped = _store_pair(pair_ptr, stride, edges_ptr, count_ptr + _N_BINS, three, two, valid)
        pair_ptr += _N_PAIR_ROWS * stride
        d, total_dev = _store_pair(pair_ptr, stride, edges_ptr, count_ptr + 2 * _N_BINS, three, one, valid)
        tl.store(sequence_ptr + 14 * stride, tl.sum(tl.abs(total_dev - dev)))
    _store_sequence(sequence_ptr, stride, one, two, three, d, counts, valid, index)
    if HAS_ADVANTAGES:
        advantage = _load(advantage_ptr + row * advantage_row + index * advantage_step, valid)
        _store_clipping(sequence_ptr, stride, clipped > CLIP_HIGH, clipped < -CLIP_LOW, advantage)


@triton.jit
def _store_sequence(out, stride, one, two, three, d, counts, valid, index):
    is_zero = valid & (one[0] == 0.0)
    abs_d = tl.abs(d)
    _store_count(out, valid)
    _store_count(out + stride, counts & (valid == 0))
    _store_count(out + 2 * stride, is_zero)
    _store_count(out + 3 * stride, is_zero & (two[0] < _SATURATED_BELOW))
    _store_count(out + 4 * stride, abs_d > _MAX_ABS_EXPONENT)
    tl.store(out + 8 * stride, tl.sum(one[0]))
    tl.store(out + 9 * stride, tl.sum(one[0] * one[0]))
    tl.store(out + 10 * stride, tl.sum(two[0]))
    tl.store(out + 11 * stride, tl.sum(two[0] * two[0]))
    tl.store(out + 12 * stride, tl.sum(three[0]))
    tl.store(out + 13 * stride, tl.sum(three[0] * three[0]))
    largest = tl.max(tl.where(valid, abs_d, -1.0))
    tl.store(out + 16 * stride, largest)
    is_largest = valid & (abs_d == largest)
    tl.store(out + 17 * stride, tl.min(tl.where(is_largest, index, 0x7FFFFFFFFFFFFFFF)).to(tl.float64))


@triton.jit
def _store_clipping(out, stride, above, below, advantage):
    """Store the counts of `ppo_clipping.clip_columns`, and the sum of advantages, which are 0 where not valid."""
    gain, loss = advantage > 0.0, advantage < 0.0
    _store_count(out + 5 * stride, (above & gain) | (below & loss))
    _store_count(out + 6 * stride, (above & loss) | (below & gain))
    _store_count(out + 7 * stride, above & loss)
    tl.store(out + 15 * stride, tl.sum(advantage))


@triton.jit
def _store_pair(out, stride, edges_ptr, count_ptr, numerator, denominator, valid):
    """Store the rows of a pair, add its histogram to the counts, and return d and rho - 1."""
    p, q = numerator[2], denominator[2]
    d = numerator[0] - denominator[0]
    dev = _expm1(d)
    k3 = tl.where(tl.abs(d) < _SERIES_BELOW, d * d * (0.5 + d * (1 / 6)), dev - d)
    truncated = tl.where(valid, tl.where(dev > _TRUNCATION, _TRUNCATION, dev) + 1.0, 0.0)
    diff = tl.abs(p - q)
    binary_kl = _binary_kl(numerator, denominator)
    _store_count(out, dev < _BAND_LOW)
    _store_count(out + stride, dev > _BAND_HIGH)
    _store_count(out + 2 * stride, dev > _TRUNCATION)
    tl.store(out + 3 * stride, tl.sum(d))
    tl.store(out + 4 * stride, tl.sum(tl.abs(d)))
    tl.store(out + 5 * stride, tl.sum(d * d))
    tl.store(out + 6 * stride, tl.sum(dev))
    tl.store(out + 7 * stride, tl.sum(dev * dev))
    tl.store(out + 8 * stride, tl.sum(tl.where(dev < 0.0, -dev, 0.0)))
    tl.store(out + 9 * stride, tl.sum(k3))
    tl.store(out + 10 * stride, tl.sum(truncated))
    tl.store(out + 11 * stride, tl.sum(truncated * truncated))
    tl.store(out + 12 * stride, tl.sum(diff))
    tl.store(out + 13 * stride, tl.sum(diff * diff))
    tl.store(out + 14 * stride, tl.sum(p))
    tl.store(out + 15 * stride, tl.sum(q))
    tl.store(out + 16 * stride, tl.sum(p * p))
    tl.store(out + 17 * stride, tl.sum(q * q))
    tl.store(out + 18 * stride, tl.sum(p * q))
    tl.store(out + 19 * stride, tl.sum(binary_kl))
    prefix = tl.cumsum(d)
    tl.store(out + 20 * stride, tl.min(tl.where(valid, d, _INFINITY)))
    tl.store(out + 21 * stride, tl.min(tl.where(valid, prefix, _INFINITY)))
    tl.store(out + 22 * stride, tl.max(tl.where(valid, d, -_INFINITY)))
    tl.store(out + 23 * stride, tl.max(tl.where(valid, prefix, -_INFINITY)))
    tl.store(out + 24 * stride, tl.max(tl.where(valid, k3, -_INFINITY)))
    tl.store(out + 25 * stride, tl.max(tl.where(valid, diff, -_INFINITY)))
    tl.store(out + 26 * stride, tl.max(tl.where(valid, binary_kl, -_INFINITY)))
    _add_histogram(count_ptr, edges_ptr, d, valid)
    return d, dev


@triton.jit
def _add_histogram(count_ptr, edges_ptr, d, valid):
    """Add the valid tokens to the bins; a token's bin is the number of edges at or below d, by binary search."""
    bins = tl.zeros_like(d).to(tl.int32)
    for halving in tl.static_range(_N_HALVINGS):
        step = _N_SLOTS >> (halving + 1)
        edge = tl.load(edges_ptr + bins + step - 1, mask=bins + step <= _N_EDGES, other=_INFINITY)
        bins += tl.where(edge <= d, step, 0)
    counts = tl.histogram(tl.where(valid, bins, _N_SLOTS - 1), _N_SLOTS)
    slot = tl.arange(0, _N_SLOTS)
    tl.atomic_add(count_ptr + slot, counts.to(tl.int64), mask=(slot < _N_BINS) & (counts > 0), sem="relaxed")


@triton.jit
def _policy(raw, valid):
    logp = tl.where(valid, raw, 0.0)
    bounded = tl.where(logp > 0.0, 0.0, logp)
    p = tl.where(valid, tl.exp(bounded), 0.0)
    rest = 1.0 - p
    rest = tl.where(rest < _MIN_REST, tl.full([], _MIN_REST, tl.float64), rest)
    return logp, bounded, p, rest, tl.log(rest)


@triton.jit
def _binary_kl(numerator, denominator):
    rest_p, rest_q = numerator[3], denominator[3]
    rest_kl = tl.where(rest_q > _NO_REST, -rest_q * (numerator[4] - denominator[4]), -rest_p)
    binary_kl = rest_kl - denominator[2] * (numerator[1] - denominator[1])
    return tl.where(binary_kl > 0.0, binary_kl, 0.0)


@triton.jit
def _expm1(d):
    """Return exp(d) - 1 with d clamped; the interpreter has no expm1."""
    x = tl.where(d > _MAX_ABS_EXPONENT, _MAX_ABS_EXPONENT, tl.where(d < -_MAX_ABS_EXPONENT, -_MAX_ABS_EXPONENT, d))
    tail = 1 / 24 + x * (1 / 120 + x * (1 / 720 + x * (1 / 5040)))
    series = x * (1.0 + x * (1 / 2 + x * (1 / 6 + x * tail)))
    return tl.where(tl.abs(x) < _EXPM1_SERIES_BELOW, series, tl.exp(x) - 1.0)


@triton.jit
def _load(pointers, wanted):
    return tl.load(pointers, mask=wanted, other=0).to(tl.float64)


@triton.jit
def _is_sound(logp):
    return (logp <= _MAX_LOGPROB) & (logp > _MIN_LOGPROB)


@triton.jit
def _store_count(pointer, is_counted):
    tl.store(pointer, tl.sum(is_counted.to(tl.float64)))
