"""The columns of the arrays that the kernels fill, one row for each sequence."""

from __future__ import annotations

from enum import IntEnum


class Sum(IntEnum):
    """The columns of the float64 array: the stems of a pair's columns, and the sums of both policies' log-probs."""

    sum_d = 0
    sum_abs_d = 1
    sum_sq_d = 2
    min_d = 3
    max_d = 4
    sum_ratio_dev = 5
    sum_sq_ratio_dev = 6
    sum_ratio_deficit = 7
    sum_trunc_ratio = 8
    sum_sq_trunc_ratio = 9
    max_k3 = 10
    max_prob_diff = 11
    sum_prob_diff = 12
    sum_sq_prob_diff = 13
    sum_p = 14
    sum_q = 15
    sum_pp = 16
    sum_qq = 17
    sum_pq = 18
    sum_binary_kl = 19
    max_binary_kl = 20
    prefix_min_d = 21
    prefix_max_d = 22
    above_logp = 23
    above_sq_logp = 24
    below_logp = 25
    below_sq_logp = 26


class Count(IntEnum):
    """The columns of the int64 array."""

    n_band_low = 0
    n_band_high = 1
    n_trunc = 2
    n_clamped = 3
    n_above_clip = 4
    n_below_clip = 5
    n_zero = 6
    n_saturated = 7
    argmax_abs_d = 8
