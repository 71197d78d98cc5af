"""Quantiles: of a few values, and of |d| from its histogram."""

from __future__ import annotations

import numpy as np

from trmon_client.core.columns import Array
from trmon_client.core.histogram import EDGES, ZERO_BIN

_ABS_EDGES = np.append(0.0, EDGES[EDGES > 0])


def percentile(values: Array, fraction: float) -> Array:
    """Return the quantile along the last axis, interpolated linearly.

    Args: values: [..., N], N >= 1; fraction: in [0, 1].
    """
    ordered = np.sort(values, axis=-1)
    position = fraction * (ordered.shape[-1] - 1)
    below = int(position)
    above = min(below + 1, ordered.shape[-1] - 1)
    return ordered[..., below] + (position - below) * (ordered[..., above] - ordered[..., below])


def abs_quantiles(counts: Array, fraction: float, *, largest: Array) -> Array:
    """Return the quantile of |d| in nats for each histogram of d, exact to the width of a bin (26%).

    Tokens are taken to lie evenly within their bin, and none above `largest`, which also ends the overflow bin.
    Args: counts: [P, N_BINS]; fraction: in [0, 1]; largest: the largest |d|, [P].
    Returns: [P]; nan where a histogram is empty.
    """
    folded = counts[:, ZERO_BIN:].astype(np.float64)
    folded[:, 1:] += counts[:, ZERO_BIN - 1 :: -1]
    reached = np.cumsum(folded, axis=1)
    n = reached[:, -1]
    rank = fraction * (n - 1)
    last = len(_ABS_EDGES) - 1
    bins = np.minimum((reached <= rank[:, None]).sum(axis=1), last)
    inside = folded[np.arange(len(bins)), bins]
    before = reached[np.arange(len(bins)), bins] - inside
    low = _ABS_EDGES[bins]
    high = np.where(bins == last, largest, _ABS_EDGES[np.minimum(bins + 1, last)])
    share = np.clip((rank - before + 0.5) / inside, 0.0, 1.0)
    return np.where(n > 0, np.minimum(low + share * (high - low), largest), np.nan)
