"""Tails: each bound of a policy as its reach, the distance from zero beyond which it rejects sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from trmon.domain.adaptation.sample import PolicySample
from trmon_client.core.columns.columns import Array
from trmon_client.core.policies.criterion import Criterion
from trmon_client.core.policies.policy import Policy

Side = Literal["lower", "upper"]
SIGNS: dict[Side, float] = {"lower": -1.0, "upper": 1.0}

INFINITE = 1e300
"""Replaces infinity, so that quantiles next to it are not NaN."""
MAX_LOG = 700.0
"""The largest log of a ratio that fits a float."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BoundTail:
    """One bound of a policy over a sample: a sequence is rejected if its value exceeds `reach`.

    Lower bounds are negated and ratios are logs, so every reach grows as its bound loosens. `values` [N] are -inf where
    the criterion does not apply; `sorted_values` [M] are the others.
    """

    index: int
    side: Side
    reach: float
    values: Array
    sorted_values: Array

    def quantile(self, share: float) -> float:
        """Return the value that a share of the sequences exceeds."""
        return float(np.quantile(self.sorted_values, 1.0 - share))


def tails_of(sample: PolicySample, policy: Policy) -> tuple[BoundTail, ...]:
    """Return the tails of all bounds that apply to some sequence."""
    found = []
    for index, criterion in enumerate(policy.criteria):
        applies = sample.applies[:, index]
        for side, reach in reaches_of(criterion).items():
            values = np.clip(SIGNS[side] * sample.statistics[:, index], -INFINITE, INFINITE)
            if applies.any():
                beyond = np.where(applies, values, -math.inf)
                inside = np.sort(values[applies])
                found.append(BoundTail(index=index, side=side, reach=reach, values=beyond, sorted_values=inside))
    return tuple(found)


def rejected_share(tails: Sequence[BoundTail], *, reaches: Sequence[float] | None = None) -> float:
    """Return the share of sequences beyond a reach of the tails, or beyond other reaches; NaN without a tail."""
    if not tails:
        return math.nan
    limits = [tail.reach for tail in tails] if reaches is None else reaches
    beyond = np.zeros(len(tails[0].values), bool)
    for tail, limit in zip(tails, limits, strict=True):
        beyond |= tail.values > limit
    return float(beyond.mean())


def reaches_of(criterion: Criterion) -> dict[Side, float]:
    """Return the reaches of the bounds of a criterion."""
    bounds: dict[Side, float | None] = {"lower": criterion.lower_compared, "upper": criterion.upper_compared}
    return {side: SIGNS[side] * bound for side, bound in bounds.items() if bound is not None}


def bound_of(criterion: Criterion, side: Side, *, reach: float) -> float:
    """Return the bound of a reach, in the units of the criterion."""
    compared = SIGNS[side] * reach
    return math.exp(min(compared, MAX_LOG)) if criterion.measured.is_ratio else compared


def with_reaches(policy: Policy, reaches: Mapping[tuple[int, Side], float], *, name: str) -> Policy:
    """Return the policy with new reaches for some bounds, by (criterion, side)."""
    criteria = list(policy.criteria)
    for (index, side), reach in reaches.items():
        bound = bound_of(criteria[index], side, reach=reach)
        criteria[index] = (
            replace(criteria[index], lower=bound) if side == "lower" else replace(criteria[index], upper=bound)
        )
    return replace(policy, name=name, criteria=tuple(criteria))
