"""Quantiles: of a few values, and of |d| from its histogram."""

from __future__ import annotations

import numpy as np

from trmon_client.core.columns import Array
from trmon_client.core.histogram import EDGES, ZERO_BIN

_ABS_EDGES = np.append(0.0, EDGES[EDGES > 0])


def percentile(values: Array, fraction: float) -> Array:
    """Return the quantile along the last axis, interpolated linearly.

    Args: values: [..., N], N >= 1; fraction: in [0, 1].
    Source: formulas, section 5.
    """
    ordered = np.sort(values, axis=-1)
    position = fraction * (ordered.shape[-1] - 1)
    below = int(position)
    above = min(below + 1, ordered.shape[-1] - 1)
    return ordered[..., below] + (position - below) * (ordered[..., above] - ordered[..., below])


def abs_quantiles(counts: Array, fraction: float | Array, *, largest: Array) -> Array:
    """Return the quantile of |d| in nats for each histogram of d, interpolated linearly between tokens.

    Tokens are taken to lie evenly within their bin, 26% wide, and none above `largest`, which also ends the overflow
    bin.
    Args: counts: [P, N_BINS]; fraction: in [0, 1], one or [..., 1]; largest: the largest |d|, [P].
    Returns: [..., P]; nan where a histogram is empty.
    Source: formulas, sections 3 and 5.
    """
    folded = counts[:, ZERO_BIN:].astype(np.float64)
    folded[:, 1:] += counts[:, ZERO_BIN - 1 :: -1]
    reached = np.add.accumulate(folded, 1)
    n = reached[:, -1]
    last = np.maximum(n - 1, 0)
    position = fraction * last
    rank = np.floor(position)
    below, above = _values_at(np.array([rank, np.minimum(rank + 1, last)]), folded, reached, largest)
    return np.where(n > 0, below + (position - rank) * (above - below), np.nan)


def _values_at(rank: Array, folded: Array, reached: Array, largest: Array) -> Array:
    """Return the |d| of the token of each rank, counted from 0, [..., P]; of the last, the largest itself."""
    overflow = len(_ABS_EDGES) - 1
    rows = np.arange(len(largest))
    bins = np.minimum(np.count_nonzero(reached <= rank[..., None], axis=-1), overflow)
    inside = folded[rows, bins]
    low = _ABS_EDGES[bins]
    high = np.where(bins == overflow, largest, _ABS_EDGES[np.minimum(bins + 1, overflow)])
    share = (rank - (reached[rows, bins] - inside) + 0.5) / inside
    return np.where(rank == reached[:, -1] - 1, largest, np.minimum(low + share * (high - low), largest))
