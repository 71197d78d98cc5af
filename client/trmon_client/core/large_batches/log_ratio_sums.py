"""The columns computed from log-ratios in float32: sums, extremes, running sums, counts and the histogram."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from trmon_client.core.arrays import NUMPY, Array, running_sums
from trmon_client.core.column_schema import Pair, primary
from trmon_client.core.columns import histogram_in_place
from trmon_client.core.inputs.checked_inputs import POLICIES
from trmon_client.core.large_batches.blocks import Block, BlockSums, ScratchBuffers
from trmon_client.core.reduction.sequences import (
    NAMES,
    SATURATED_BELOW,
    SUM_LOGP,
    SUM_SQ_LOGP,
    UNLIKELY_BELOW,
    positive_columns,
    sequence_labels,
    zero_tails,
)
from trmon_client.core.reduction.token_terms import (
    BAND_HIGH,
    BAND_LOW,
    MAX_ABS_EXPONENT,
    RATIOS,
    TRUNCATION,
    ClipRange,
    ClipTokens,
    clipped_pair,
    counted_both,
    pairs_of,
    times,
)


def log_ratio_sums(block: Block, scratch: ScratchBuffers, *, clip: ClipRange) -> BlockSums:
    """Return the columns of d, of token counts and of labels, and the histograms. Source: formulas, section 3."""
    given = block.inputs
    d, terms = scratch.buffers("terms", "f4", 2, block.valid.shape)
    (flags,) = scratch.buffers("terms", "?", 1, block.valid.shape)
    found = {"n_tokens": block.n_tokens, "n_invalid": block.n_counted - block.n_tokens}
    for name, of_policy in block.logp.items():
        found[SUM_LOGP[name]] = NUMPY.sum(of_policy, -1)
        found[SUM_SQ_LOGP[name]] = NUMPY.sum_product(of_policy, of_policy, -1)
    if POLICIES[0] in block.logp:
        found |= _rollout_columns(block, counts=given.mask, flags=flags)
        found |= positive_columns(given, n_invalid=found["n_invalid"])
    histograms: dict[Pair, Array] = {}
    pairs = pairs_of(block.logp)
    for pair in pairs:
        above, below = RATIOS[pair]
        np.subtract(block.logp[above], block.logp[below], out=d)
        ratio = LogRatio.of(block, d, flags=flags)
        by_stem = _pair_columns(block, ratio, terms=terms)
        if pair == primary(pairs):
            found["argmax_abs_d"] = by_stem["argmax_abs_d"]
            found["n_clamped"] = ratio.n_above(MAX_ABS_EXPONENT) + ratio.n_below(-MAX_ABS_EXPONENT)
        if given.advantages is not None and pair == clipped_pair(pairs):
            # If clip.low >= 1 the bound is NaN or -inf, which no ratio is below.
            high, low, dual = float(np.log1p(clip.high)), float(np.log1p(-clip.low)), math.log(clip.dual)
            if given.advantages.ndim == 1:
                numbers = ClipTokens(ratio.n_above(high), ratio.n_below(low), ratio.n_above(dual), block.n_tokens)
                found |= numbers.columns(given.advantages, both=times)
            else:
                tokens = ClipTokens(ratio.d > high, ratio.d < low, ratio.d > dual, block.valid)
                found |= tokens.columns(given.advantages, both=counted_both(NUMPY, -1))
        found |= {name: by_stem[stem] for stem, name in NAMES[pair].items() if stem in by_stem}
        histograms[pair] = histogram_in_place(d, n_absent=d.size - int(block.n_tokens.sum()))
    return BlockSums(block.rows, found | sequence_labels(given, valid=block.valid), histograms)


@dataclass(frozen=True, slots=True)
class LogRatio:
    """The log-ratios of one pair and their extremes over valid tokens."""

    d: Array
    """float32 [rows, horizon], 0 where not valid."""
    min: Array
    """[rows]"""
    max: Array
    lowest: float
    highest: float
    flags: Array
    """bool [rows, horizon]: a scratch buffer."""

    @classmethod
    def of(cls, block: Block, d: Array, *, flags: Array) -> LogRatio:
        """Return the log-ratios with their extremes."""
        least, most = NUMPY.min(d, -1), NUMPY.max(d, -1)
        if block.invalid is not None and (block.is_partly_valid & ((least == 0.0) | (most == 0.0))).any():
            # The 0 may belong to a token that is not valid.
            least, most = block.extremes(d)
        return cls(d, least, most, float(least.min()), float(most.max()), flags)

    def n_above(self, bound: float) -> Array:
        """Return the number of d above a bound >= 0, [rows]."""
        return self._count(np.greater(self.d, bound, out=self.flags) if self.highest > bound else None)

    def n_below(self, bound: float) -> Array:
        """Return the number of d below a bound <= 0, [rows]."""
        return self._count(np.less(self.d, bound, out=self.flags) if self.lowest < bound else None)

    def _count(self, flags: Array | None) -> Array:
        return np.zeros(len(self.d), np.int64) if flags is None else NUMPY.count(flags, -1)


def _rollout_columns(block: Block, *, counts: Array, flags: Array) -> dict[str, Array]:
    """Return the counts of the tokens that are certain to the sampler or unlikely to the trainer, [rows]."""
    rollout, trainer, *_ = block.logp.values()
    found = dict.fromkeys(
        ("n_mu_zero", "n_saturated", "n_mu_zero_unlikely", "n_zero_tail"), np.zeros(len(rollout), np.int64)
    )
    # Every log-prob is 0 where not valid.
    is_unlikely = np.less(trainer, UNLIKELY_BELOW, out=flags)
    found["n_unlikely"] = NUMPY.count(is_unlikely, -1)
    if block.highest[POLICIES[0]] >= 0.0:
        is_zero = rollout == 0.0
        if block.invalid is not None:
            is_zero &= block.valid
        found["n_mu_zero_unlikely"] = NUMPY.count(np.logical_and(is_unlikely, is_zero, out=flags), -1)
        found["n_mu_zero"] = NUMPY.count(is_zero, -1)
        found["n_zero_tail"] = zero_tails(NUMPY, is_zero, counts=counts, axis=-1)
        is_zero &= trainer < SATURATED_BELOW
        found["n_saturated"] = NUMPY.count(is_zero, -1)
    return found


def _pair_columns(block: Block, ratio: LogRatio, *, terms: Array) -> dict[str, Array]:
    """Return the columns of the pair by stem, [rows], and the position of the largest |d|; `terms` is overwritten."""
    abs_d = np.abs(ratio.d, out=terms)
    found = {
        "sum_abs_d": NUMPY.sum(abs_d, -1),
        "sum_sq_d": NUMPY.sum_product(ratio.d, ratio.d, -1),
        "min_d": ratio.min,
        "max_d": ratio.max,
        "argmax_abs_d": abs_d.argmax(-1),
        "n_band_low": ratio.n_below(math.log(BAND_LOW)),
        "n_band_high": ratio.n_above(math.log(BAND_HIGH)),
        "n_trunc": ratio.n_above(math.log(TRUNCATION)),
    }
    if block.invalid is not None:
        # If all d are 0, take the first valid token.
        is_zero = (ratio.min == 0.0) & (ratio.max == 0.0)
        found["argmax_abs_d"] = np.where(is_zero, block.valid.argmax(-1), found["argmax_abs_d"])
    prefix = running_sums(ratio.d, out=terms)
    least, most = NUMPY.min(prefix, -1), NUMPY.max(prefix, -1)
    if block.invalid is not None and (block.invalid[:, 0] & ((least == 0.0) | (most == 0.0))).any():
        # The 0 may precede the first valid token.
        least, most = block.extremes(prefix)
    return found | {"prefix_min_d": least, "prefix_max_d": most}
