"""M2PO's mask: the largest d^2 are dropped until the mean of the kept ones is below a limit."""

from __future__ import annotations

import math

import numpy as np

from trmon_client.core.arrays.backend import Array, Arrays


def kept_by_second_moment(xp: Arrays, squares: Array, *, valid: Array, limit: float | None) -> Array:
    """Return which tokens M2PO keeps, bool [B, T]: at least one valid token; of equal d^2, the first ones.

    Args: squares: d^2, [B, T]; valid: bool [B, T]; limit: the mean of the kept d^2 is below it, unless one is kept.
    No value is read from a device, because no shape depends on one.
    Source: [M2PO] (arXiv 2510.01161), as AReaL computes it; formulas, section 6.
    """
    if not len(squares):
        return valid
    flat = xp.where(valid, squares, math.inf).reshape(-1)
    order = xp.order(flat)
    n_smallest = xp.running_sum(xp.cast(flat >= 0.0, "f8")[None], -1)[0]
    mean = xp.running_sum(flat[order][None], -1)[0] / n_smallest
    kept = (mean < limit) | (n_smallest <= 1.0)
    return valid & kept[xp.order(order)].reshape(valid.shape)


def fraction_dropped(values: Array, counts: Array, *, limit: float) -> float:
    """Return the fraction of tokens that M2PO drops, of tokens counted by value.

    Args: values: d^2, ascending, [N]; counts: the tokens of each value, [N].
    Returns: nan without tokens.
    Source: formulas, section 6.
    """
    total = float(counts.sum())
    if not total:
        return math.nan
    kept = excess_sum = 0.0
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        fitting = min(float(count), _n_fitting(value - limit, excess_sum))
        kept += fitting
        excess_sum += fitting * (value - limit) if fitting else 0.0
        if fitting < count:
            break
    return 1.0 - max(1.0, kept) / total


def _n_fitting(excess: float, excess_sum: float) -> float:
    """Return how many tokens can be added before the sum of d^2 - limit of the kept ones is no longer below 0."""
    if excess < 0:
        return math.inf
    if excess == 0 or excess == math.inf:
        return math.inf if excess == 0 > excess_sum else 0.0
    return max(0.0, math.ceil(-excess_sum / excess) - 1.0)


def squares_of_bins(edges: Array, *, at: str) -> Array:
    """Return d^2 of each bin of a histogram at its smallest, middle or largest |d|; the overflow bins are open.

    Args: edges: ascending, [N - 1]; at: `smallest`, `middle` or `largest`.
    """
    low = np.concatenate([[-math.inf], edges])
    high = np.concatenate([edges, [math.inf]])
    smallest = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(np.abs(low), np.abs(high)))
    largest = np.maximum(np.abs(low), np.abs(high))
    reach = {"smallest": smallest, "largest": largest, "middle": (smallest + largest) / 2}[at]
    return np.asarray(np.square(reach))
