"""Computes signals of response lengths."""

from __future__ import annotations

import numpy as np

from trmon_client.core.columns.columns import Array
from trmon_client.core.columns.quantiles import quantile_of_sorted
from trmon_client.core.columns.sequence_matrix import SequenceMatrix

NEAR_CAP = 0.95
"""Lengths from this fraction of the largest one on are compared with those of exactly the largest."""


def length_signals(sequences: SequenceMatrix) -> dict[str, float]:
    """Return the signals of response lengths, in valid tokens. Source: formulas, sections 5 and 10."""
    ordered = np.sort(sequences.lengths)
    return {
        "response_length_mean": sequences.sums["n_tokens"] / len(ordered),
        "response_length_median": quantile_of_sorted(ordered, 0.5),
        "response_length_p95": quantile_of_sorted(ordered, 0.95),
        "response_length_max": quantile_of_sorted(ordered, 1.0),
        "length_limit_share": _share_at_limit(sequences),
    }


def _share_at_limit(sequences: SequenceMatrix) -> float:
    """Return the share of `truncated` sequences where it is given, else of those at the cap of the batch."""
    if "truncated" in sequences.columns:
        truncated = sequences.of_column("truncated")
        known = truncated[truncated >= 0]
        return float(np.count_nonzero(known) / np.float64(len(known)))
    columns = sequences.columns
    counted = columns["n_tokens"] + columns["n_invalid"]
    return float("nan") if sequences.is_empty else share_at_cap(counted[columns["n_tokens"] > 0])


def share_at_cap(lengths: Array) -> float:
    """Return the share of lengths at the cap: the largest one, where the lengths pile up there; 0 without a pile.

    A distribution that is cut off has more sequences at its largest length than just below it (within 5%), and at
    least two; the largest length of one that is not cut off is rare. Args: lengths: [N], N >= 1.
    """
    largest = lengths.max()
    n_at_cap = int(np.count_nonzero(lengths == largest))
    n_below = int(np.count_nonzero(lengths >= NEAR_CAP * largest)) - n_at_cap
    return n_at_cap / len(lengths) if n_at_cap >= 2 and n_at_cap > n_below else 0.0
