"""Assembles the columns of a large batch from the sums of its blocks."""

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
"""Columns that are undefined for a sequence without valid tokens."""

QUADRATIC = 1e-7
"""Below it k3 equals d^2 / 2 to seven digits, while rho - 1 - d is less accurate."""


def finish_columns(parts: Sequence[BlockSums]) -> Columns:
    """Return the columns of the batch.

    Args: parts: the sums of both kinds of block, in any order; together they hold every column of every sequence.
    Source: formulas, section 3.
    """
    sums = _in_batch_order(parts)
    histograms: dict[Pair, Array] = {}
    for pair in PAIRS:
        counts = [part.histograms[pair] for part in parts if pair in part.histograms]
        if counts:
            histograms[pair] = sum(counts[1:], counts[0])
            sums |= _completed_pair({stem: sums[name] for stem, name in NAMES[pair].items() if name in sums}, pair)
    is_empty = sums["n_tokens"] == 0
    found: dict[str, Array] = {}
    for name, spec in COLUMNS.items():
        if name in sums:
            found[name] = NUMPY.cast(sums[name], spec.dtype)
            if name in EXTREMES:
                found[name][is_empty] = spec.identity
    return Columns(found, histograms)


def _in_batch_order(parts: Sequence[BlockSums]) -> dict[str, Array]:
    """Return each column of the parts, with the sequences in the order of the batch."""
    by_columns: dict[tuple[str, ...], list[BlockSums]] = {}
    for part in parts:
        by_columns.setdefault(tuple(part.by_name), []).append(part)
    found: dict[str, Array] = {}
    for names, group in by_columns.items():
        if len(group) == 1 and isinstance(group[0].rows, slice):
            found |= group[0].by_name
            continue
        order = np.argsort(np.concatenate([sequence_positions(part.rows) for part in group]))
        found |= {name: np.concatenate([part.by_name[name] for part in group])[order] for name in names}
    return found


def _completed_pair(sums: dict[str, Array], pair: Pair) -> dict[str, Array]:
    """Return the k3 columns of one pair, and the columns that rounding may have left slightly below 0."""
    found = {stem: np.maximum(sums[stem], 0.0) for stem in ("sum_binary_kl", "max_binary_kl")}
    extremes = np.stack([sums["min_d"], sums["max_d"]]).astype(np.float64)
    # Both sums are float64.
    k3_from_sums = np.maximum(sums["sum_ratio_dev"] - sums["sum_d"], 0.0)
    found["sum_k3"] = np.where(np.abs(extremes).max(0) < QUADRATIC, sums["sum_sq_d"] / 2.0, k3_from_sums)
    # k3 grows with |d| on either side of 0 as long as d is not clamped, so its maximum is at an extreme.
    k3_of_extremes = k3(NUMPY, extremes, np.expm1(clamp_log_ratio(NUMPY, extremes))).max(0)
    found["max_k3"] = np.where(np.isnan(sums["max_k3"]), k3_of_extremes, sums["max_k3"])
    return {NAMES[pair][stem]: array for stem, array in found.items()}
