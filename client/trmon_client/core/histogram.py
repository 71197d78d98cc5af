"""The histogram of d between the edges of the schema, one row for each pair, and the quantiles read from it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import cache

import numpy as np

from trmon_client.core.arrays import Array, Device, is_tensor, to_computable
from trmon_client.core.column_schema import HISTOGRAM_EDGES, N_BINS

EDGES = np.array(HISTOGRAM_EDGES)
# A float32 is below an edge exactly if it is below the smallest float32 that is not below the edge.
_ROUNDED_EDGES = EDGES.astype(np.float32)
FLOAT32_EDGES = np.where(_ROUNDED_EDGES < EDGES, np.nextafter(_ROUNDED_EDGES, np.float32(np.inf)), _ROUNDED_EDGES)
ZERO_BIN = N_BINS // 2
SORT_SIZE = 1 << 15
"""Tokens that are sorted at a time; larger pieces cost more than the saved searches for edges."""


def histograms(d: Array, *, valid: Array) -> Array:
    """Return the counts [pairs, N_BINS] int64 of valid tokens; a bin holds edge_i <= d < edge_(i+1).

    Args: d: [pairs, ...] float64 or float32, 0 where not valid; valid: bool [...].
    Source: formulas, section 3.
    """
    rows = d.reshape(len(d), -1)
    counts: Array
    if is_tensor(d):
        import torch

        bins = torch.bucketize(rows, edges_on(d.device), right=True)
        bins += torch.arange(0, len(d) * N_BINS, N_BINS, device=d.device)[:, None]
        # torch.bincount would synchronise to learn its length.
        zeros = torch.zeros(len(d) * N_BINS, dtype=torch.int64, device=d.device)
        counts = zeros.scatter_add_(0, bins.flatten(), torch.ones_like(bins).flatten()).reshape(len(d), N_BINS)
    else:
        # numpy sorts with vector instructions, which is faster than a table lookup for each token.
        ends = [np.searchsorted(row, EDGES) for row in np.sort(rows)]
        counts = np.diff(ends, prepend=0, append=rows.shape[1])
    counts[:, ZERO_BIN] -= (~valid).sum()
    return counts


def histogram_in_place(d: Array, *, n_absent: int) -> Array:
    """Return the counts [N_BINS] int64 of float32 tokens on the host.

    Args: d: contiguous, of any shape; sorted piece by piece in place. n_absent: the number of tokens that are 0 because
    they are not valid, which are not counted.
    Source: formulas, section 3.
    """
    flat = d.reshape(-1)
    end = len(flat) - len(flat) % SORT_SIZE
    pieces = flat[:end].reshape(-1, SORT_SIZE)
    pieces.sort()
    flat[end:].sort()
    ends = np.zeros(N_BINS + 1, np.int64)
    for piece in (*pieces, flat[end:]):
        ends[1:-1] += np.searchsorted(piece, FLOAT32_EDGES)
    ends[-1] = len(flat)
    counts: Array = ends[1:] - ends[:-1]
    counts[ZERO_BIN] -= n_absent
    return counts


@cache
def edges_on(device: Device, *, is_single: bool = False) -> Array:
    """Return the edges as a tensor on a device of torch; is_single: those of float32 log-ratios, in float32."""
    import torch

    edges = FLOAT32_EDGES if is_single else EDGES
    return torch.from_numpy(edges) if device.type == "cpu" else to_computable(edges, device)


_ABS_EDGES: list[float] = [0.0, *EDGES[EDGES > 0].tolist()]
_OVERFLOW = len(_ABS_EDGES) - 1


def percentile(values: Array, fraction: float) -> Array:
    """Return the quantile along the last axis, interpolated linearly.

    Args: values: [..., N], N >= 1; fraction: in [0, 1].
    Source: formulas, sections 3 and 5.
    """
    ordered = np.sort(values, axis=-1)
    position = fraction * (ordered.shape[-1] - 1)
    below = int(position)
    above = min(below + 1, ordered.shape[-1] - 1)
    return ordered[..., below] + (position - below) * (ordered[..., above] - ordered[..., below])


def quantile_of_sorted(ordered: Array, fraction: float) -> float:
    """Return the quantile of sorted values, as `percentile` does; Python numbers are faster. Args: ordered: [N]."""
    position = fraction * (len(ordered) - 1)
    below = int(position)
    value = ordered.item(below)
    if position > below:
        value += (position - below) * (ordered.item(below + 1) - value)
    return float(value)


def abs_quantiles(counts: Array, fractions: Sequence[float], *, largest: Array) -> list[list[float]]:
    """Return quantiles of |d| in nats for each histogram of d, interpolated linearly between tokens.

    Tokens are assumed to be spread evenly within their bin, which is 26% wide; the overflow bin ends at `largest`.
    Args: counts: [P, N_BINS]; fractions: each in [0, 1]; largest: the largest |d|, [P].
    Returns: a row for each histogram with a value for each fraction; nan for an empty histogram.
    Source: formulas, sections 3 and 5.
    """
    folded = counts[:, ZERO_BIN:].astype(np.float64)
    folded[:, 1:] += counts[:, ZERO_BIN - 1 :: -1]
    # Python numbers from here on, which are faster than arrays for a few values.
    rows = zip(np.add.accumulate(folded, 1).tolist(), largest.tolist(), strict=True)
    return [[_abs_quantile(cumulative, top, fraction) for fraction in fractions] for cumulative, top in rows]


def _abs_quantile(cumulative: list[float], largest: float, fraction: float) -> float:
    """Args: cumulative: the number of tokens with |d| up to the end of each bin."""
    last = cumulative[-1] - 1
    if last < 0:
        return math.nan
    position = fraction * last
    rank = math.floor(position)
    below, above = (_abs_value_at(at, cumulative, largest) for at in (rank, min(rank + 1, last)))
    return below + (position - rank) * (above - below)


def _abs_value_at(rank: float, cumulative: list[float], largest: float) -> float:
    """Return |d| of the token at a rank, counted from 0; the last is the largest."""
    if rank == cumulative[-1] - 1:
        return largest
    bin_ = min(bisect_right(cumulative, rank), _OVERFLOW)
    before = cumulative[bin_ - 1] if bin_ else 0.0
    high = largest if bin_ == _OVERFLOW else _ABS_EDGES[bin_ + 1]
    share = (rank - before + 0.5) / (cumulative[bin_] - before)
    return min(_ABS_EDGES[bin_] + share * (high - _ABS_EDGES[bin_]), largest)
