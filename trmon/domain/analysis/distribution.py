"""Distributions: where the sequences of each step stood against the threshold that cut them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from trmon_client.core.columns.columns import Array, Columns
from trmon_client.core.policies.acceptance import Criterion, Policy, PolicyError, decide
from trmon_client.core.policies.decision import FIRST_CRITERION

BINS = 32
LOG_FROM_RATIO = 30.0
"""From this ratio of the largest to the least value on, bins are spaced by logarithms."""
LARGEST_RATIO = 1e8
"""What is smaller than the largest value by more lies in the lowest bin."""

Read: TypeAlias = tuple[str, str, str | None]
"""What a criterion reads, whatever its bounds: statistic, pair, where."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CriterionSample:
    """What one criterion read of one step's sequences, [N] in its own units, its bounds, and how many it rejected."""

    step: int
    values: Array
    lower: float | None
    upper: float | None
    n_rejected: int


@dataclass(slots=True)
class CriterionSamples:
    """What the criteria of a run's policies made of its steps, by what they read."""

    by_read: dict[Read, list[CriterionSample]] = field(default_factory=dict)

    def add(self, columns: Columns, *, step: int, policy: Policy) -> None:
        """Take a step's sequences in; a policy that lacks what it needs has nothing to say of them."""
        try:
            decision = decide(columns, policy)
        except PolicyError:
            return
        rows = (columns["n_tokens"] > 0) & (columns["n_invalid"] == 0)
        for index, (criterion, compared) in enumerate(zip(policy.criteria, decision.compared, strict=True)):
            if compared is not None:
                rejected = int(np.count_nonzero(decision.codes == FIRST_CRITERION + index))
                cut = _cut(criterion, compared[rows], step=step, n_rejected=rejected)
                self.by_read.setdefault(criterion_key(criterion), []).append(cut)

    @property
    def telling(self) -> Read | None:
        """What the criterion reads that rejected most, of equal ones the first; None where none applied."""
        return max(self.by_read, key=self.n_rejected, default=None)

    def n_rejected(self, read: Read) -> int:
        """Return how many sequences a criterion rejected, as the first that did."""
        return sum(cut.n_rejected for cut in self.by_read[read])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Distribution:
    """Counts [steps, bins] of sequences between edges [bins + 1], ascending; the outer bins take what lies beyond.

    `n_unknown` [steps] counts NaN; `lower` and `upper` [steps] are the bounds in force, None where there is none.
    """

    steps: tuple[int, ...]
    edges: Array
    counts: Array
    n_unknown: tuple[int, ...]
    lower: tuple[float | None, ...]
    upper: tuple[float | None, ...]


def criterion_key(criterion: Criterion) -> Read:
    """Return what a criterion reads."""
    return criterion.statistic, criterion.pair, criterion.where


def distribution(cuts: Sequence[CriterionSample]) -> Distribution:
    """Return the distribution of a criterion's statistic over steps. Args: cuts: one or more, in order of steps."""
    bounds = [bound for cut in cuts for bound in (cut.lower, cut.upper) if bound is not None]
    edges = _edges(np.concatenate([*(cut.values for cut in cuts), bounds]))
    known = [cut.values[~np.isnan(cut.values)] for cut in cuts]
    return Distribution(
        steps=tuple(cut.step for cut in cuts),
        edges=edges,
        counts=np.stack([_counts(values, edges) for values in known]),
        n_unknown=tuple(len(cut.values) - len(values) for cut, values in zip(cuts, known, strict=True)),
        lower=tuple(cut.lower for cut in cuts),
        upper=tuple(cut.upper for cut in cuts),
    )


def in_bound_units(criterion: Criterion, compared: Array) -> Array:
    """Return what a criterion compared, [N], in the units of its bounds: ratios are compared as logs."""
    with np.errstate(over="ignore"):
        return np.exp(compared) if criterion.measured.is_ratio else np.asarray(compared, float)


def _cut(criterion: Criterion, compared: Array, *, step: int, n_rejected: int) -> CriterionSample:
    values = in_bound_units(criterion, compared)
    return CriterionSample(
        step=step, values=values, lower=criterion.lower, upper=criterion.upper, n_rejected=n_rejected
    )


def _edges(values: Array) -> Array:
    """Return the edges for values and bounds, by logarithms where these span orders of magnitude from 0 up."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return np.linspace(0.0, 1.0, BINS + 1)
    least, largest = float(finite.min()), float(finite.max())
    positive = finite[finite > 0]
    if least >= 0 and len(positive) and largest > LOG_FROM_RATIO * positive.min():
        return np.geomspace(max(float(positive.min()), largest / LARGEST_RATIO), largest, BINS + 1)
    margin = (largest - least or abs(largest) or 1.0) / BINS
    return np.linspace(least - margin, largest + margin, BINS + 1)


def _counts(values: Array, edges: Array) -> Array:
    places = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, len(edges) - 2)
    return np.bincount(places, minlength=len(edges) - 1)
