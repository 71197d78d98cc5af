"""The Triton kernel of the columns: one program for each stretch of a sequence reads each of its tokens once.

This module imports Triton, so it is imported only on request. A thread adds up the terms of its own tokens, in float32
except the moments of probabilities; a program joins its threads once, at its end, in float64, and `reduce` joins the
programs of a sequence.
"""

from __future__ import annotations

import triton
import triton.language as tl

from trmon_client.core.column_schema import CLIP_STEMS, N_BINS
from trmon_client.core.inputs.checked_inputs import MAX_LOGPROB
from trmon_client.core.reduction.token_terms import pairs_of
from trmon_client.core.triton_columns.token_terms import (
    add_to_bins,
    clip_counts,
    is_deviation,
    is_within_bounds,
    load,
    pair_terms,
    policy_of,
    policy_terms,
    ratio_counts,
    sequence_counts,
    wide_probability,
    with_tile_of_zeros,
)
from trmon_client.core.triton_functions import added, added_rows, highest_rows

PAIR_SUMS: tuple[str, ...] = (
    *("n_band_low", "n_band_high", "n_trunc", "sum_d", "sum_abs_d", "sum_sq_d"),
    *("sum_ratio_dev", "sum_sq_ratio_dev", "sum_ratio_deficit", "sum_k3", "sum_trunc_ratio", "sum_sq_trunc_ratio"),
    *("sum_prob_diff", "sum_sq_prob_diff", "sum_binary_kl", "n_prob_diff_half"),
)
PAIR_MAXIMA: tuple[str, ...] = (
    *("negated_min_d", "negated_prefix_min_d", "max_d", "prefix_max_d"),
    *("max_k3", "max_prob_diff", "max_binary_kl", "max_positive"),
)
"""Of each pair; prefixes begin at the stretch. The last row is of the sequence: the kernel needs powers of two."""
PAIR_EXTREMES: tuple[str, ...] = tuple(stem.removeprefix("negated_") for stem in PAIR_MAXIMA)
POLICY_SUMS: tuple[str, ...] = ("sum_logp", "sum_sq_logp")
MOMENTS: tuple[str, ...] = ("sum_p", "sum_sq_p")
"""Of each policy, added in float64: where p is near 1 its variance is far below their squares."""
CROSS_MOMENTS: tuple[str, ...] = ("sum_pq",)
"""Of each pair, likewise."""
SEQUENCE_COUNTS: tuple[str, ...] = (
    *("n_tokens", "n_invalid", "n_mu_zero", "n_saturated", "n_clamped"),
    *("n_mu_zero_unlikely", "n_unlikely", "n_positive"),
)
CLIP_COUNTS: dict[str, tuple[str, ...]] = {
    "none": (),
    "sequence": ("n_above", "n_below", "n_far", "unused_count"),
    "token": (*CLIP_STEMS, "unused_count"),
}
"""Counts of the clipped pair's ratios, by what has an advantage: of tokens by its sign, of sequences that is known."""
SEQUENCE_SUMS: tuple[str, ...] = ("sum_abs_is_dev", "sum_advantage")


def names_of_sums(policies: tuple[str, ...], *, advantages: str) -> tuple[str, ...]:
    """Return the rows that are summed over the stretches of a sequence, which come first.

    Args: advantages: what has one, a key of `CLIP_COUNTS`.
    """
    pairs = pairs_of(policies)
    return (
        *(f"{pair}_{stem}" for pair in pairs for stem in PAIR_SUMS),
        *(f"{pair}_{stem}" for pair in pairs for stem in CROSS_MOMENTS),
        *(f"{policy}_{stem}" for policy in policies for stem in POLICY_SUMS),
        *(f"{policy}_{stem}" for policy in policies for stem in MOMENTS),
        *SEQUENCE_COUNTS,
        *CLIP_COUNTS[advantages],
        *SEQUENCE_SUMS,
        "n_zero_tail",
    )


def names_of_maxima(policies: tuple[str, ...]) -> tuple[str, ...]:
    """Return the rows of which the highest is taken; the position of the last one's token has a row after them."""
    return (*(f"{pair}_{stem}" for pair in pairs_of(policies) for stem in PAIR_MAXIMA), "max_abs_d")


# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call, untyped-decorator, no-untyped-def"


N_SHARDS = 1024
"""Copies of the histograms: programs that add to the same counters would wait for each other."""
_N_SHARDS, _N_COUNTERS = tl.constexpr(N_SHARDS), tl.constexpr(N_BINS)
_N_PAIR_SUMS, _N_PAIR_MAXIMA = tl.constexpr(len(PAIR_SUMS)), tl.constexpr(len(PAIR_MAXIMA))
_N_POLICY_SUMS = tl.constexpr(len(POLICY_SUMS))
_N_COUNTS, _N_SUMS = tl.constexpr(len(SEQUENCE_COUNTS)), tl.constexpr(len(SEQUENCE_SUMS))
_INFINITY = tl.constexpr(float("inf"))
_MAX_LOGPROB = tl.constexpr(MAX_LOGPROB)

# The code below is compiled by Triton, which supports no keyword-only arguments.


# Triton would pass a batch of one sequence as an integer of Python.
@triton.jit(do_not_specialize=["n_sequences"])
def columns_kernel(
    first_ptr, second_ptr, third_ptr, mask_ptr, advantage_ptr, edges_ptr, table_ptr, counter_ptr,
    n_sequences, horizon,
    first_row, first_step, second_row, second_step, third_row, third_step,
    mask_row, mask_step, advantage_row, advantage_step,
    THREE: tl.constexpr, ADVANTAGES: tl.constexpr,
    CLIP_LOW: tl.constexpr, CLIP_HIGH: tl.constexpr, CLIP_DUAL: tl.constexpr,
    N_TILES: tl.constexpr, TILE: tl.constexpr, THREADS: tl.constexpr,
):  # fmt: skip
    """Fill the rows of a stretch: mu, pi_old and pi are first, second and third; of two policies there is no third."""
    sequence, stretch, n_stretches = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
    counter_ptr += (sequence * n_stretches + stretch) % _N_SHARDS * ((3 if THREE else 1) * _N_COUNTERS)
    one_sums, one_p, one_pp = _no_policy_terms(THREADS)
    two_sums, two_p, two_pp = _no_policy_terms(THREADS)
    three_sums, three_p, three_pp = _no_policy_terms(THREADS)
    counts = tl.zeros([THREADS, _N_COUNTS], tl.float32)
    clips = tl.zeros([THREADS, 8 if ADVANTAGES == "token" else 4], tl.float32)
    sums = tl.zeros([THREADS, _N_SUMS], tl.float32)
    zero_tail = tl.full([], 0.0, tl.float32)
    # Of two policies the first pair is the only one; of three it is mismatch.
    first_sums, first_maxima, first_prefix, first_cross = _no_pair_terms(THREADS)
    staleness_sums, staleness_maxima, staleness_prefix, staleness_cross = _no_pair_terms(THREADS)
    total_sums, total_maxima, total_prefix, total_cross = _no_pair_terms(THREADS)
    largest, position = tl.full([TILE], -1.0, tl.float32), tl.zeros([TILE], tl.int32)
    for tile in range(N_TILES):
        index = (stretch * N_TILES + tile) * TILE + tl.arange(0, TILE)
        offset = index.to(tl.int64)
        # Read whether they count or not, several at a time: what is read must not depend on the mask.
        inside = index < horizon
        counted = inside & (tl.load(mask_ptr + sequence * mask_row + offset * mask_step, mask=inside, other=0) != 0)
        # The padding of a batch costs its mask alone.
        if tl.max(counted.to(tl.int32)) > 0:
            first = load(first_ptr + sequence * first_row + offset * first_step, inside)
            second = load(second_ptr + sequence * second_row + offset * second_step, inside)
            valid = counted & is_within_bounds(first) & is_within_bounds(second)
            third = second
            if THREE:
                third = load(third_ptr + sequence * third_row + offset * third_step, inside)
                valid &= is_within_bounds(third)

            one, two = policy_of(first, valid), policy_of(second, valid)
            p_one, p_two = wide_probability(one, valid), wide_probability(two, valid)
            one_sums, one_p, one_pp = _with_policy(one_sums, one_p, one_pp, one, p_one, THREADS)
            two_sums, two_p, two_pp = _with_policy(two_sums, two_p, two_pp, two, p_two, THREADS)
            highest = tl.maximum(tl.maximum(first, second), third)
            positive = tl.where(counted & (highest > _MAX_LOGPROB), highest.to(tl.float32), -_INFINITY)
            first_sums, first_maxima, first_prefix, first_cross, first_d, rho, dev = _with_pair(
                first_sums, first_maxima, first_prefix, first_cross,
                two, one, p_two * p_one, valid, positive, counter_ptr, edges_ptr, THREADS,
            )  # fmt: skip
            d, clipped, is_dev = first_d, dev, tl.zeros_like(dev)
            if THREE:
                three = policy_of(third, valid)
                p_three = wide_probability(three, valid)
                three_sums, three_p, three_pp = _with_policy(three_sums, three_p, three_pp, three, p_three, THREADS)
                (
                    staleness_sums, staleness_maxima, staleness_prefix, staleness_cross, staleness_d, _, clipped
                ) = _with_pair(
                    staleness_sums, staleness_maxima, staleness_prefix, staleness_cross,
                    three, two, p_three * p_two, valid, positive, counter_ptr + _N_COUNTERS, edges_ptr, THREADS,
                )  # fmt: skip
                total_sums, total_maxima, total_prefix, total_cross, d, _, total_dev = _with_pair(
                    total_sums, total_maxima, total_prefix, total_cross,
                    three, one, p_three * p_one, valid, positive, counter_ptr + 2 * _N_COUNTERS, edges_ptr, THREADS,
                )  # fmt: skip
                is_dev = is_deviation(rho, first_d, clipped, staleness_d, total_dev, d, dev)

            advantage = tl.zeros_like(d)
            if ADVANTAGES == "token":
                given = load(advantage_ptr + sequence * advantage_row + offset * advantage_step, inside).to(tl.float32)
                advantage = tl.where(valid, given, 0.0)
                clips += added_rows(clip_counts(clipped, advantage, valid, CLIP_LOW, CLIP_HIGH, CLIP_DUAL), THREADS)
            if ADVANTAGES == "sequence":
                clips += added_rows(ratio_counts(clipped, CLIP_LOW, CLIP_HIGH, CLIP_DUAL), THREADS)
            counts += added_rows(sequence_counts(one, two, positive, d, counted, valid), THREADS)
            zero_tail = with_tile_of_zeros(zero_tail, valid & (one[0] == 0.0), counted, index)
            sums += added_rows(tl.join(is_dev, advantage), THREADS)
            abs_d = tl.where(valid, tl.abs(d), -1.0)
            position = tl.where(abs_d > largest, index, position)
            largest = tl.maximum(largest, abs_d)

    stride = n_sequences.to(tl.int64) * n_stretches
    table_ptr += sequence * n_stretches + stretch
    table_ptr = _store_sums(table_ptr, stride, first_sums)
    if THREE:
        table_ptr = _store_sums(table_ptr, stride, staleness_sums)
        table_ptr = _store_sums(table_ptr, stride, total_sums)
    table_ptr = _store_sum(table_ptr, stride, first_cross)
    if THREE:
        table_ptr = _store_sum(table_ptr, stride, staleness_cross)
        table_ptr = _store_sum(table_ptr, stride, total_cross)
    table_ptr = _store_sums(table_ptr, stride, one_sums)
    table_ptr = _store_sums(table_ptr, stride, two_sums)
    if THREE:
        table_ptr = _store_sums(table_ptr, stride, three_sums)
    table_ptr = _store_sum(_store_sum(table_ptr, stride, one_p), stride, one_pp)
    table_ptr = _store_sum(_store_sum(table_ptr, stride, two_p), stride, two_pp)
    if THREE:
        table_ptr = _store_sum(_store_sum(table_ptr, stride, three_p), stride, three_pp)
    table_ptr = _store_sums(table_ptr, stride, counts)
    if ADVANTAGES != "none":
        table_ptr = _store_sums(table_ptr, stride, clips)
    table_ptr = _store_sums(table_ptr, stride, sums)
    tl.store(table_ptr, zero_tail.to(tl.float64))
    table_ptr += stride
    table_ptr = _store_maxima(table_ptr, stride, first_maxima)
    if THREE:
        table_ptr = _store_maxima(table_ptr, stride, staleness_maxima)
        table_ptr = _store_maxima(table_ptr, stride, total_maxima)
    farthest = tl.max(largest)
    tl.store(table_ptr, farthest.to(tl.float64))
    first_position = tl.min(tl.where(largest == farthest, position, 0x7FFFFFFF))
    tl.store(table_ptr + stride, first_position.to(tl.float64))


@triton.jit
def _no_policy_terms(THREADS: tl.constexpr):
    none = tl.zeros([THREADS], tl.float64)
    return tl.zeros([THREADS, _N_POLICY_SUMS], tl.float32), none, none


@triton.jit
def _no_pair_terms(THREADS: tl.constexpr):
    """Return the sums and maxima by thread, the running sum of d, and the sum of p q by thread."""
    sums, maxima = (
        tl.zeros([THREADS, _N_PAIR_SUMS], tl.float32),
        tl.full([THREADS, _N_PAIR_MAXIMA], -_INFINITY, tl.float32),
    )
    return sums, maxima, tl.full([], 0.0, tl.float32), tl.zeros([THREADS], tl.float64)


@triton.jit
def _with_policy(sums, p_sum, pp_sum, policy, p, THREADS: tl.constexpr):
    """Return the sums of a policy by thread with the terms of a tile."""
    return sums + added_rows(policy_terms(policy), THREADS), p_sum + added(p, THREADS), pp_sum + added(p * p, THREADS)


@triton.jit
def _with_pair(
    sums,
    maxima,
    prefix,
    cross,
    numerator,
    denominator,
    pq,
    valid,
    positive,
    counter_ptr,
    edges_ptr,
    THREADS: tl.constexpr,
):
    """Return what `_no_pair_terms` returns with the terms of a tile, and d, rho and rho - 1; add d to the histogram."""
    d, rho, dev, terms, tile_maxima = pair_terms(numerator, denominator, valid, prefix, positive)
    sums += added_rows(terms, THREADS)
    maxima = tl.maximum(maxima, highest_rows(tile_maxima, THREADS))
    prefix += tl.sum(d)
    cross += added(pq, THREADS)
    add_to_bins(counter_ptr, edges_ptr, d, valid)
    return sums, maxima, prefix, cross, d, rho, dev


@triton.jit
def _store_sums(pointer, stride, sums):
    """Store the sums over threads in rows, and return where the next row begins."""
    tl.store(pointer + tl.arange(0, sums.shape[1]) * stride, tl.sum(sums.to(tl.float64), 0))
    return pointer + sums.shape[1] * stride


@triton.jit
def _store_sum(pointer, stride, terms):
    """Store the sum over threads, and return where the next row begins."""
    tl.store(pointer, tl.sum(terms))
    return pointer + stride


@triton.jit
def _store_maxima(pointer, stride, maxima):
    """Store the highest of the threads in rows, and return where the next row begins."""
    tl.store(pointer + tl.arange(0, maxima.shape[1]) * stride, tl.max(maxima, 0).to(tl.float64))
    return pointer + maxima.shape[1] * stride
