"""Mask rates: the rejected share of sequences, of tokens, by response length and by sign of the advantage; weights."""

from __future__ import annotations

import math

import numpy as np

from trmon_client.core.columns.columns import Array, Columns
from trmon_client.core.columns.quantiles import quantile_of_sorted


def mask_rates(columns: Columns, accepted: Array) -> dict[str, float]:
    """Return the rejected shares, without empty sequences; NaN for a group without sequences.

    Args: accepted: [B] bool.
    Returns: mask_rate; mask_rate_tokens, weighted by valid tokens; _long and _short, of the responses in the top and
    bottom quarter of lengths; with advantages, _positive and _negative by their sign.
    Source: formulas, sections 5 and 6.
    """
    decided = (columns["n_tokens"] > 0) | (columns["n_invalid"] > 0)
    rejected = ~accepted[decided]
    lengths = columns["n_tokens"][decided].astype(np.float64)
    ordered = np.sort(lengths)
    short, long = (quantile_of_sorted(ordered, share) if len(ordered) else math.nan for share in (0.25, 0.75))
    weights = {
        "mask_rate": np.ones_like(lengths),
        "mask_rate_tokens": lengths,
        "mask_rate_long": lengths >= long,
        "mask_rate_short": lengths <= short,
    }
    if "advantage" in columns:
        advantage = columns["advantage"][decided]
        weights |= {"mask_rate_positive": advantage > 0, "mask_rate_negative": advantage < 0}
    matrix = np.array(list(weights.values()), np.float64)
    totals = np.add.reduce(matrix, -1).tolist()
    shares = (matrix @ rejected).tolist()
    return {
        name: share / total if total else math.nan for name, share, total in zip(weights, shares, totals, strict=True)
    }


def sequence_weights(columns: Columns, accepted: Array) -> dict[str, float]:
    """Return the mean weight of the non-empty sequences; nothing without a rule that weights.

    Args: accepted: [B] bool.
    Returns: sequence_weight_mean, NaN without a sequence.
    Source: formulas, section 6, [3P].
    """
    if "sum_token_weight" not in columns:
        return {}
    tokens = columns["n_tokens"]
    counted = tokens > 0
    if not counted.any():
        return {"sequence_weight_mean": math.nan}
    weights = np.where(accepted[counted], columns["sum_token_weight"][counted] / tokens[counted], 0.0)
    return {"sequence_weight_mean": float(weights.mean())}
