"""The three-policy split: how much of the drift engine mismatch makes, and how much staleness."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trmon_client.core.bounds import AlphaSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySplit:
    """Lower bounds of the worst-case TVs of [3P] and mean TVs per token; nan where a policy was not sent.

    `alpha_0` (staleness) and `alpha_1` (mismatch) are bounded by the largest difference of a token's probabilities;
    `mean_*` estimate the mean TV, the one of staleness by importance weights. `exact_max` and `exact_mean` are the TVs
    from logits, of the pair whose logits were sent. `is_replayed`: routing replay hides alpha, it does not shrink it.
    """

    alpha_0: float
    alpha_1: float
    mismatch_share: float
    mean_staleness: float
    mean_mismatch: float
    exact_max: float
    exact_mean: float
    is_replayed: bool


def policy_split(signals: Mapping[str, float], *, is_replayed: bool) -> PolicySplit:
    """Return the split of a step's signals.

    Source: [3P] theorem 2; formulas, sections 7 and 11.
    """
    alphas = AlphaSplit.of_signals(signals)
    names = ("staleness_tv_is", "mismatch_tv", "tv_max", "tv_mean")
    mean_staleness, mean_mismatch, exact_max, exact_mean = (signals.get(name, math.nan) for name in names)
    return PolicySplit(
        alpha_0=alphas.staleness,
        alpha_1=alphas.mismatch,
        mismatch_share=alphas.mismatch_share,
        mean_staleness=mean_staleness,
        mean_mismatch=mean_mismatch,
        exact_max=exact_max,
        exact_mean=exact_mean,
        is_replayed=is_replayed,
    )
