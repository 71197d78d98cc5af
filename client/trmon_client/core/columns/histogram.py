"""The histogram of d: counts of tokens between the edges of the schema, one row a pair."""

from __future__ import annotations

from functools import cache

import numpy as np

from trmon_client.core.arrays.backend import Array, Device, is_tensor, to_computable
from trmon_client.core.columns.schema import HISTOGRAM_EDGES, N_BINS

EDGES = np.array(HISTOGRAM_EDGES)
# What is below the least float32 that is no less than an edge is below the edge.
_NEAREST = EDGES.astype(np.float32)
SINGLE_EDGES = np.where(_NEAREST < EDGES, np.nextafter(_NEAREST, np.float32(np.inf)), _NEAREST)
ZERO_BIN = N_BINS // 2
SORTED = 1 << 15
"""Tokens that are sorted together: what more of them cost, the fewer searches for edges do not save."""


def histograms(d: Array, *, valid: Array) -> Array:
    """Return the counts [pairs, N_BINS] int64 of valid tokens; a bin holds edge_i <= d < edge_(i+1).

    Args: d: [pairs, ...] float64 or float32, 0 where not valid; valid: bool [...].
    Source: formulas, section 3.
    """
    rows = d.reshape(len(d), -1)
    counts = _tensor_counts(rows) if is_tensor(d) else _counts(rows)
    counts[:, ZERO_BIN] -= (~valid).sum()
    return counts


def histogram_in_place(d: Array, *, n_absent: int) -> Array:
    """Return the counts [N_BINS] int64 of float32 tokens of the host, but for so many whose 0 does not count.

    Args: d: of any shape, contiguous; sorted piece by piece on return.
    Source: formulas, section 3.
    """
    flat = d.reshape(-1)
    end = len(flat) - len(flat) % SORTED
    pieces = flat[:end].reshape(-1, SORTED)
    pieces.sort()
    flat[end:].sort()
    ends = np.zeros(N_BINS + 1, np.int64)
    for piece in (*pieces, flat[end:]):
        ends[1:-1] += np.searchsorted(piece, SINGLE_EDGES)
    ends[-1] = len(flat)
    counts: Array = ends[1:] - ends[:-1]
    counts[ZERO_BIN] -= n_absent
    return counts


def _counts(d: Array) -> Array:
    # numpy sorts with vector instructions: faster than to look every token up in a table.
    ends = [np.searchsorted(row, EDGES) for row in np.sort(d)]
    return np.diff(ends, prepend=0, append=d.shape[1])


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

    return torch.from_numpy(EDGES) if device.type == "cpu" else to_computable(EDGES, device)
