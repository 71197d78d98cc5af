"""From what the blocks of a large batch add up to, to its columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trmon_client.core.arrays.backend import NUMPY, Array
from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import COLUMNS, LABELS, PAIRS, Pair, Reduction
from trmon_client.core.large_batches.block import BlockSums
from trmon_client.core.large_batches.row_blocks import sequence_positions
from trmon_client.core.reduction.block_reduction import NAMES
from trmon_client.core.reduction.kl_estimators import clamp_log_ratio, k3

EXTREMES = {
    name
    for name, spec in COLUMNS.items()
    if spec.reduction in (Reduction.MIN, Reduction.MAX, Reduction.POSITION) and spec not in LABELS
}
"""Columns of which a sequence without valid tokens has none."""

QUADRATIC = 1e-7
"""Below it k3 is d^2 / 2 to seven digits, and rho - 1 - d loses more."""


def finish_columns(parts: Sequence[BlockSums]) -> Columns:
    """Return the columns of the batch.

    Args: parts: of either kind of block, in any order; together they hold every column of every sequence.
    Source: formulas, section 3.
    """
    sums = _gathered(parts)
    histograms: dict[Pair, Array] = {}
    for pair in PAIRS:
        counts = [part.histograms[pair] for part in parts if pair in part.histograms]
        if counts:
            histograms[pair] = sum(counts[1:], counts[0])
            sums |= _of_pair({stem: sums[name] for stem, name in NAMES[pair].items() if name in sums}, pair)
    is_empty = sums["n_tokens"] == 0
    found: dict[str, Array] = {}
    for name, spec in COLUMNS.items():
        if name in sums:
            found[name] = NUMPY.cast(sums[name], spec.dtype)
            if name in EXTREMES:
                found[name][is_empty] = spec.identity
    return Columns(found, histograms)


def _gathered(parts: Sequence[BlockSums]) -> dict[str, Array]:
    """Return what the parts hold of each column, in the order of the batch."""
    kinds: dict[tuple[str, ...], list[BlockSums]] = {}
    for part in parts:
        kinds.setdefault(tuple(part.by_name), []).append(part)
    found: dict[str, Array] = {}
    for names, alike in kinds.items():
        if len(alike) == 1 and isinstance(alike[0].rows, slice):
            found |= alike[0].by_name
            continue
        order = np.argsort(np.concatenate([sequence_positions(part.rows) for part in alike]))
        found |= {name: np.concatenate([part.by_name[name] for part in alike])[order] for name in names}
    return found


def _of_pair(sums: dict[str, Array], pair: Pair) -> dict[str, Array]:
    """Return the columns of one pair that rounding left a little below 0, and those of k3."""
    found = {stem: np.maximum(sums[stem], 0.0) for stem in ("sum_binary_kl", "max_binary_kl")}
    ends = np.stack([sums["min_d"], sums["max_d"]]).astype(np.float64)
    # Both were added up in float64.
    of_sums = np.maximum(sums["sum_ratio_dev"] - sums["sum_d"], 0.0)
    found["sum_k3"] = np.where(np.abs(ends).max(0) < QUADRATIC, sums["sum_sq_d"] / 2.0, of_sums)
    # It grows with the distance from d = 0, on either side, as long as d is not clamped.
    of_ends = k3(NUMPY, ends, np.expm1(clamp_log_ratio(NUMPY, ends))).max(0)
    found["max_k3"] = np.where(np.isnan(sums["max_k3"]), of_ends, sums["max_k3"])
    return {NAMES[pair][stem]: array for stem, array in found.items()}
