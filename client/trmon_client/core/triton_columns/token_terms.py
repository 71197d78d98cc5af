"""The terms of each token in the kernel's sums and maxima, and its histogram bin.

This module imports Triton, so it is imported only by the kernel. Log-ratios are differences in the precision of the
log-probs. All else is float32, in forms without cancellation, with the errors of `fast_exp`. Terms are 0 at tokens that
are not valid. A policy is the tuple of its log-prob, the same bounded by 0, its probability, the probability of the
rest, the same but at least `MIN_REST`, and the logarithm of that.
"""

# mypy: disable-error-code="import-not-found, import-untyped, no-untyped-call, untyped-decorator, no-untyped-def"
# ruff: noqa: E741, a stack of sixteen has an l

from __future__ import annotations

import triton
import triton.language as tl

from trmon_client.core.column_schema import HISTOGRAM_EDGES, N_BINS
from trmon_client.core.inputs import checked_inputs
from trmon_client.core.reduction import sequences, token_terms
from trmon_client.core.triton_functions import fast_exp, fast_log2, fast_quotient

_MAX_LOGPROB = tl.constexpr(checked_inputs.MAX_LOGPROB)
_MIN_LOGPROB = tl.constexpr(checked_inputs.MIN_LOGPROB)
_UNLIKELY_BELOW = tl.constexpr(sequences.UNLIKELY_BELOW)
_HALF = tl.constexpr(sequences.HALF)
_SATURATED_BELOW = tl.constexpr(sequences.SATURATED_BELOW)
_MAX_ABS_EXPONENT = tl.constexpr(token_terms.MAX_ABS_EXPONENT)
_BAND_LOW = tl.constexpr(token_terms.BAND_LOW - 1.0)
_BAND_HIGH = tl.constexpr(token_terms.BAND_HIGH - 1.0)
_TRUNCATION = tl.constexpr(token_terms.TRUNCATION - 1.0)
_MIN_REST = tl.constexpr(token_terms.MIN_REST)
_NO_REST = tl.constexpr(token_terms.NO_REST)
_SERIES_BELOW = tl.constexpr(0.5)
"""Below it exp(x) - 1 - x is a series."""
_ATANH_SERIES_BELOW = tl.constexpr(0.2)
_EDGES_PER_OCTAVE = tl.constexpr(3.0102999566398120)
"""Ten edges of the histogram for each factor of ten."""
_N_EDGES_EACH_SIDE = tl.constexpr(len(HISTOGRAM_EDGES) // 2)
_EDGES_BELOW_1 = tl.constexpr(60.0)
_UNSURE = tl.constexpr(1e-3)
"""Nearer to an edge than this share of a bin, the logarithm does not tell the side."""
_ZERO_BIN = tl.constexpr(N_BINS // 2)
_INFINITY = tl.constexpr(float("inf"))
_LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def load(pointers, wanted):
    """Return the wanted elements, in single precision at least, and 0 elsewhere."""
    values = tl.load(pointers, mask=wanted, other=0)
    return values if values.dtype == tl.float64 else values.to(tl.float32)


@triton.jit
def is_within_bounds(logp):
    """Return where log-probs are within bounds; NaN compares false."""
    return (logp <= _MAX_LOGPROB) & (logp > _MIN_LOGPROB)


@triton.jit
def policy_of(raw, valid):
    """Return the policy with these log-probs."""
    logp = tl.where(valid, raw, 0.0)
    bounded = tl.minimum(logp, 0.0)
    exponent = bounded.to(tl.float32)
    p = tl.where(valid, fast_exp(exponent), 0.0)
    rest = tl.where(exponent > -_SERIES_BELOW, -(exponent + _k3_series(exponent)), 1.0 - p)
    floored = tl.maximum(rest, _MIN_REST)
    return logp, bounded, p, rest, floored, fast_log2(floored) * _LN2


@triton.jit
def policy_terms(policy):
    """Return the terms of `kernel.POLICY_SUMS`, [tokens, rows]."""
    logp = policy[0].to(tl.float32)
    return tl.join(logp, logp * logp)


@triton.jit
def wide_probability(policy, valid):
    """Return the probability in float64, near 1 from that of the rest, which has more digits."""
    is_near_1 = valid & (policy[3] < 0.5)
    # One conversion, which is slow, of what is to be added to 1 or to 0.
    return tl.where(is_near_1, 1.0, 0.0).to(tl.float64) + tl.where(is_near_1, -policy[3], policy[2]).to(tl.float64)


@triton.jit
def pair_terms(numerator, denominator, valid, prefix_before, positive):
    """Return d, rho, rho - 1, the terms of `kernel.PAIR_SUMS` and those of `kernel.PAIR_MAXIMA`, [tokens, rows]."""
    logp, bounded, p, rest, rest_p, log_rest_p = numerator
    below, below_bounded, q, below_rest, rest_q, log_rest_q = denominator
    d, bounded_d = (logp - below).to(tl.float32), (bounded - below_bounded).to(tl.float32)
    is_near = tl.abs(d) < _SERIES_BELOW
    series = _k3_series(d)
    far_rho = fast_exp(tl.minimum(tl.maximum(d, -_MAX_ABS_EXPONENT), _MAX_ABS_EXPONENT))
    dev = tl.where(is_near, d + series, far_rho - 1.0)
    rho = tl.where(is_near, dev + 1.0, far_rho)
    k3 = tl.where(is_near, series, dev - d)
    # Positive log-probs, which rounding can cause, are bounded in probabilities but not in ratios.
    is_bounded = d != bounded_d
    is_product = is_near & (is_bounded == 0)
    diff = tl.where(is_product, q * dev, tl.where(is_bounded, below_rest - rest, p - q))
    abs_diff = tl.abs(diff)
    # KL(q||p) of {the token, the rest} = q k3 + (1 - q)(-log(1 - u) - u), u = (p - q) / (1 - q): two positive terms.
    # s = u / (2 - u) is small where u is, and -log(1 - u) = 2 atanh(s).
    s = fast_quotient(diff, rest_p + rest_q)
    s2 = s * s
    tail = 2.0 * rest_q * s * s2 * (1 / 3 + s2 * (1 / 5 + s2 * (1 / 7 + s2 * (1 / 9))))
    rest_term = tl.where(tl.abs(s) < _ATANH_SERIES_BELOW, s * diff + tail, rest_q * (log_rest_q - log_rest_p) - diff)
    token_term = tl.where(is_product, q * series, diff - q * bounded_d)
    kl = tl.where(rest_q > _NO_REST, token_term + rest_term, -rest_p - q * bounded_d)
    kl = tl.maximum(kl, 0.0)
    truncated = tl.where(valid, tl.minimum(rho, _TRUNCATION + 1.0), 0.0)
    prefix = prefix_before + tl.cumsum(d)
    sums = _stack16(
        *(_flag(dev < _BAND_LOW), _flag(dev > _BAND_HIGH), _flag(dev > _TRUNCATION), d, tl.abs(d), d * d),
        *(dev, dev * dev, tl.maximum(-dev, 0.0), k3, truncated, truncated * truncated),
        *(abs_diff, diff * diff, kl, _flag(abs_diff > _HALF)),
    )
    # k3, the difference and the KL are never negative, so that their zeros do no harm.
    excluded = tl.where(valid, 0.0, -_INFINITY)
    maxima = _stack8(
        *(excluded - d, excluded - prefix, excluded + d, excluded + prefix),
        *(k3, abs_diff, kl, positive),
    )
    return d, rho, dev, sums, maxima


@triton.jit
def is_deviation(mismatch_rho, mismatch_d, staleness_dev, staleness_d, total_dev, total_d, mismatch_dev):
    """Return |rho_total - rho_mismatch|, as rho_mismatch |rho_staleness - 1| unless a log-ratio is clamped."""
    farthest = tl.maximum(tl.maximum(tl.abs(mismatch_d), tl.abs(staleness_d)), tl.abs(total_d))
    product = mismatch_rho * tl.abs(staleness_dev)
    return tl.where(farthest <= _MAX_ABS_EXPONENT, product, tl.abs(total_dev - mismatch_dev))


@triton.jit
def sequence_counts(one, two, positive, d, counted, valid):
    """Return the terms of `kernel.SEQUENCE_COUNTS`, [tokens, rows]."""
    is_zero, is_unlikely = valid & (one[0] == 0.0), valid & (two[0] < _UNLIKELY_BELOW)
    return _stack8(
        _flag(valid),
        _flag(counted & (valid == 0)),
        _flag(is_zero),
        _flag(is_zero & (two[0] < _SATURATED_BELOW)),
        _flag(tl.abs(d) > _MAX_ABS_EXPONENT),
        _flag(is_zero & is_unlikely),
        _flag(is_unlikely),
        _flag(positive > 0.0),
    )


@triton.jit
def ratio_counts(dev, CLIP_LOW: tl.constexpr, CLIP_HIGH: tl.constexpr, CLIP_DUAL: tl.constexpr):
    """Return the terms of `kernel.CLIP_COUNTS` of sequences, [tokens, rows]; dev: rho - 1, 0 where not valid."""
    far = _flag(dev > CLIP_DUAL - 1.0)
    return _stack4(_flag(dev > CLIP_HIGH), _flag(dev < -CLIP_LOW), far, far)


@triton.jit
def clip_counts(dev, advantage, valid, CLIP_LOW: tl.constexpr, CLIP_HIGH: tl.constexpr, CLIP_DUAL: tl.constexpr):
    """Return the terms of `kernel.CLIP_COUNTS`, [tokens, rows], as `token_terms.ClipTokens`; dev: rho - 1."""
    above, below, gain, loss = dev > CLIP_HIGH, dev < -CLIP_LOW, advantage > 0.0, advantage < 0.0
    far = _flag((dev > CLIP_DUAL - 1.0) & loss)
    return _stack8(
        _flag((above & gain) | (below & loss)),
        _flag((above & loss) | (below & gain)),
        _flag(above & loss),
        _flag(above & gain),
        far,
        _flag(valid & gain),
        _flag(valid & loss),
        far,
    )


@triton.jit
def with_tile_of_zeros(n, is_zero, counted, index):
    """Return the number of counting tokens after the last one that is not zero, with the next tile of tokens."""
    last = tl.max(tl.where(counted & (is_zero == 0), index, -1))
    return tl.where(last >= 0, 0.0, n) + tl.sum(_flag(counted & (index > last)))


@triton.jit
def add_to_bins(counter_ptr, edges_ptr, d, valid):
    """Add the valid tokens to their bins, except to the bin at zero; a token's bin is the number of edges <= d."""
    place = fast_log2(tl.abs(d)) * _EDGES_PER_OCTAVE + _EDGES_BELOW_1
    nearest = tl.minimum(tl.maximum(tl.floor(place + 0.5), 0.0), _N_EDGES_EACH_SIDE - 1.0)
    is_negative = d < 0.0
    edge_index = tl.where(is_negative, _N_EDGES_EACH_SIDE - 1 - nearest, _N_EDGES_EACH_SIDE + nearest).to(tl.int32)
    is_unsure = tl.abs(place - nearest) < _UNSURE
    edge = tl.load(edges_ptr + edge_index, mask=is_unsure, other=0.0)
    is_above = tl.where(is_unsure, edge <= d, (place > nearest) != is_negative)
    bins = edge_index + is_above.to(tl.int32)
    tl.atomic_add(counter_ptr + bins, 1, mask=valid & (bins != _ZERO_BIN), sem="relaxed")


@triton.jit
def _k3_series(x):
    """Return exp(x) - 1 - x for |x| < 0.5."""
    tail = 1 / 120 + x * (1 / 720 + x * (1 / 5040 + x * (1 / 40320)))
    return x * x * (1 / 2 + x * (1 / 6 + x * (1 / 24 + x * tail)))


@triton.jit
def _flag(condition):
    return tl.where(condition, 1.0, 0.0)


@triton.jit
def _stack4(a, b, c, d):
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [a.shape[0], 4])


@triton.jit
def _stack8(a, b, c, d, e, f, g, h):
    return tl.reshape(tl.join(_stack4(a, c, e, g), _stack4(b, d, f, h)), [a.shape[0], 8])


@triton.jit
def _stack16(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p):
    evens, odds = _stack8(a, c, e, g, i, k, m, o), _stack8(b, d, f, h, j, l, n, p)
    return tl.reshape(tl.join(evens, odds), [a.shape[0], 16])
