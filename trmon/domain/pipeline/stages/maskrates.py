"""Mask rates: the rejected share of sequences, of tokens, by response length and by sign of the advantage; weights."""

from __future__ import annotations

import math

import numpy as np

from trmon.domain.analysis.whatif import WeightTotal
from trmon_client.core.arrays import Array
from trmon_client.core.columns import Columns
from trmon_client.core.histogram import quantile_of_sorted


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


def sequence_weights(columns: Columns, accepted: Array, *, soft_weights: Array | None = None) -> dict[str, float]:
    """Return the mean weight of the non-empty sequences and their effective share; nothing where nothing is weighted.

    Args: accepted: [B] bool; soft_weights: [B], M of a soft policy, in its place.
    Returns: sequence_weight_mean, sequence_weight_ess; both are the share of accepted sequences under weights 0 and 1.
    Source: formulas, section 6, [3P], [TRM].
    """
    if "sum_token_weight" not in columns and soft_weights is None:
        return {}
    tokens = columns["n_tokens"]
    counted = tokens > 0
    factors = (accepted if soft_weights is None else soft_weights)[counted]
    of_tokens = columns["sum_token_weight"][counted] / tokens[counted] if "sum_token_weight" in columns else 1.0
    total = WeightTotal()
    total.add(np.where(factors > 0, of_tokens * factors, 0.0))
    return {"sequence_weight_mean": total.mean, "sequence_weight_ess": total.effective_share}
