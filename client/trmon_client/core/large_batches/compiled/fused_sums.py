"""The columns of a block by the compiled kernels: log-ratios, ratios and probabilities in one pass over each pair."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from trmon_client.core.arrays.backend import NUMPY, Array
from trmon_client.core.columns.schema import N_BINS, Pair, primary
from trmon_client.core.inputs.checked_inputs import POLICIES, CheckedInputs
from trmon_client.core.large_batches.block import BlockSums
from trmon_client.core.large_batches.compiled.block_kernels import (
    EDGES,
    FIRST_BINS,
    add_ratio_differences,
    exclude_invalid,
    reduce_pair,
)
from trmon_client.core.large_batches.compiled.column_indices import Count, Sum
from trmon_client.core.large_batches.row_blocks import RowBlock
from trmon_client.core.large_batches.scratch_buffers import ScratchBuffers
from trmon_client.core.reduction.block_reduction import NAMES, SUM_LOGP, SUM_SQ_LOGP
from trmon_client.core.reduction.kl_estimators import RATIOS, pairs_of
from trmon_client.core.reduction.ppo_clipping import ClipRange, clip_columns, clip_counts, clipped_pair
from trmon_client.core.reduction.sequence_labels import sequence_labels


class _Bounds(NamedTuple):
    """The log-ratios beyond which PPO clips; if clip.low >= 1 the lower one is NaN or -inf, which none is below."""

    low: np.float32
    high: np.float32

    @classmethod
    def of(cls, clip: ClipRange) -> _Bounds:
        with np.errstate(all="ignore"):
            return cls(np.float32(np.log1p(-clip.low)), np.float32(np.log1p(clip.high)))


class _PairSums(NamedTuple):
    """The columns of one pair, [columns, rows], and its histogram."""

    sums: Array
    counts: Array
    histogram: Array

    @classmethod
    def of(cls, above: Array, below: Array, valid: Array, *, bounds: _Bounds) -> _PairSums:
        sums, counts = np.empty((len(valid), len(Sum))), np.empty((len(valid), len(Count)), np.int64)
        histogram = np.zeros((2, N_BINS), np.int64)
        reduce_pair(above, below, valid, *bounds, FIRST_BINS, EDGES, sums, counts, histogram)
        return cls(sums.T, counts.T, histogram.sum(0))

    def by_stem(self) -> dict[str, Array]:
        """Return the columns that every pair has."""
        found = {each.name: self.sums[each] for each in Sum if not each.name.endswith("logp")}
        return found | {each.name: self.counts[each] for each in (Count.n_band_low, Count.n_band_high, Count.n_trunc)}


def fused_sums(inputs: CheckedInputs, row_block: RowBlock, scratch: ScratchBuffers, *, clip: ClipRange) -> BlockSums:
    """Return all columns and histograms of the block. Source: formulas, section 3."""
    given = row_block.of(inputs)
    shape = given.mask.shape
    memory = scratch.buffers("f4", len(given.logprobs), shape)
    logp = {name: _contiguous(raw, out=out) for (name, raw), out in zip(given.logprobs.items(), memory, strict=True)}
    (valid,) = scratch.buffers("?", 1, shape)
    np.copyto(valid, given.mask)
    n_counted = NUMPY.count(valid, -1)
    for array in logp.values():
        exclude_invalid(array, valid)
    n_tokens = NUMPY.count(valid, -1)
    bounds = _Bounds.of(clip)
    pairs = pairs_of(logp)
    policies = {pair: (logp[above], logp[below]) for pair, (above, below) in RATIOS.items() if pair in pairs}
    reduced = {pair: _PairSums.of(*policies[pair], valid, bounds=bounds) for pair in pairs}
    found = {"n_tokens": n_tokens, "n_invalid": n_counted - n_tokens}
    found |= _token_columns(reduced, logp, valid)
    for pair, each in reduced.items():
        by_stem = each.by_stem()
        found |= {NAMES[pair][stem]: array for stem, array in by_stem.items()}
    if given.advantages is not None:
        pair = clipped_pair(pairs)
        found |= _clip_columns(given.advantages, reduced[pair], *policies[pair], valid, bounds)
    labels = sequence_labels(given, valid=valid)
    return BlockSums(row_block.rows, found | labels, {pair: each.histogram for pair, each in reduced.items()})


def _contiguous(raw: Array, *, out: Array) -> Array:
    """Return the array in the form that the kernels take, copied to `out` if necessary."""
    if raw.dtype == np.float32 and raw.flags.aligned and raw.flags.c_contiguous:
        return raw
    np.copyto(out, raw)
    return out


def _token_columns(reduced: dict[Pair, _PairSums], logp: dict[str, Array], valid: Array) -> dict[str, Array]:
    pairs = tuple(reduced)
    found: dict[str, Array] = {}
    for pair, (sums, _, _) in reduced.items():
        above, below = RATIOS[pair]
        found |= {SUM_LOGP[above]: sums[Sum.above_logp], SUM_SQ_LOGP[above]: sums[Sum.above_sq_logp]}
        found |= {SUM_LOGP[below]: sums[Sum.below_logp], SUM_SQ_LOGP[below]: sums[Sum.below_sq_logp]}
    first, main = reduced[pairs[0]].counts, reduced[primary(pairs)].counts
    if POLICIES[0] in logp:
        found["n_mu_zero"], found["n_saturated"] = first[Count.n_zero], first[Count.n_saturated]
    found["n_clamped"], found["argmax_abs_d"] = main[Count.n_clamped], main[Count.argmax_abs_d]
    if len(logp) == len(POLICIES):
        rollout, old, new = (logp[name] for name in POLICIES)
        found["sum_abs_is_dev"] = np.empty(len(valid))
        add_ratio_differences(new, old, rollout, valid, found["sum_abs_is_dev"])
    return found


def _clip_columns(
    advantages: Array, pair: _PairSums, above: Array, below: Array, valid: Array, bounds: _Bounds
) -> dict[str, Array]:
    if advantages.ndim == 1:
        counts = pair.counts
        return clip_counts(counts[Count.n_above_clip], counts[Count.n_below_clip], advantages=advantages)
    d = np.where(valid, above - below, np.float32(0.0))
    return clip_columns(NUMPY, d > bounds.high, d < bounds.low, advantages=advantages, axis=-1)
