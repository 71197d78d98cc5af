"""The histogram of d: counts of tokens between the edges of the schema, one row a pair."""

from __future__ import annotations

from functools import cache

import numpy as np

from trmon_client.core.arrays import Array, Device, bring, is_tensor
from trmon_client.core.schema import HISTOGRAM_EDGES, N_BINS

EDGES = np.array(HISTOGRAM_EDGES)
ZERO_BIN = N_BINS // 2
CELL_SHIFT = 49
"""Without its 49 lowest bits a float64 is its sign, its exponent and 3 bits: the cell it lies in. A cell spans a
factor of 9/8 at most and bins one of 1.26, so that no cell holds two edges: a table of cells bins an order of
magnitude faster than the binary search."""


def histograms(d: Array, *, valid: Array) -> Array:
    """Return the counts [pairs, N_BINS] int64 of valid tokens; a bin holds edge_i <= d < edge_(i+1).

    Args: d: [pairs, ...] float64, 0 where not valid; valid: bool [...].
    Source: formulas, section 3.
    """
    rows = d.reshape(len(d), -1)
    counts = _tensor_counts(rows) if is_tensor(d) else _counts(rows)
    counts[:, ZERO_BIN] -= (~valid).sum()
    return counts


def _counts(d: Array) -> Array:
    bin_of_least, edge_above = _cells()
    cells = d.view(np.int64) >> CELL_SHIFT
    bins = bin_of_least[cells] + (d >= edge_above[cells])
    bins += np.arange(0, len(d) * N_BINS, N_BINS)[:, None]
    return np.bincount(bins.ravel(), minlength=len(d) * N_BINS).reshape(len(d), N_BINS)


@cache
def _cells() -> tuple[Array, Array]:
    """Return, for every cell, the bin of its least value and the first edge above that value.

    Negative numbers have negative cells, which index from the end.
    """
    nearest_zero = np.arange(1 << (64 - CELL_SHIFT), dtype=np.uint64) << np.uint64(CELL_SHIFT)
    ends = np.stack([nearest_zero, nearest_zero | np.uint64((1 << CELL_SHIFT) - 1)]).view(np.float64)
    bin_of_least = np.searchsorted(EDGES, np.fmin(*ends), side="right")
    return bin_of_least, np.append(EDGES, np.inf)[bin_of_least]


def _tensor_counts(d: Array) -> Array:
    import torch

    bins = torch.bucketize(d, _edges(d.device), right=True)
    bins += torch.arange(0, len(d) * N_BINS, N_BINS, device=d.device)[:, None]
    # torch.bincount would synchronise to learn its length.
    counts = torch.zeros(len(d) * N_BINS, dtype=torch.int64, device=d.device)
    return counts.scatter_add_(0, bins.flatten(), torch.ones_like(bins).flatten()).reshape(len(d), N_BINS)


@cache
def _edges(device: Device) -> Array:
    import torch

    return torch.from_numpy(EDGES) if device.type == "cpu" else bring(EDGES, device)
