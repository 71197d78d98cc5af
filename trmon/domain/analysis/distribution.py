"""Distributions: histograms of a criterion's statistic by step, with the bounds that were active."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from trmon_client.core.arrays import Array
from trmon_client.core.columns import Columns
from trmon_client.core.policies.criteria import Criterion
from trmon_client.core.policies.decision import FIRST_CRITERION, decide
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError

BINS = 32
LOG_FROM_RATIO = 30.0
"""Bins have logarithmic widths if the largest value is this many times the smallest one."""
LARGEST_RATIO = 1e8
"""Values smaller than the largest one by more than this factor are in the lowest bin."""

CriterionKey: TypeAlias = tuple[str, str, str | None]
"""A criterion without its bounds: statistic, pair, where."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CriterionSample:
    """The statistic of one criterion over the sequences of one step, [N], its bounds, and the number it rejected."""

    step: int
    values: Array
    lower: float | None
    upper: float | None
    n_rejected: int


@dataclass(slots=True)
class CriterionSamples:
    """The samples of the criteria of a run's policies, by criterion."""

    by_criterion: dict[CriterionKey, list[CriterionSample]] = field(default_factory=dict)

    def add(self, columns: Columns, *, step: int, policy: Policy) -> None:
        """Add the sequences of a step; they are left out if they lack data that the policy needs."""
        try:
            decision = decide(columns, policy)
        except PolicyError:
            return
        rows = (columns["n_tokens"] > 0) & (columns["n_invalid"] == 0)
        for index, (criterion, compared) in enumerate(zip(policy.criteria, decision.compared, strict=True)):
            if compared is not None:
                rejected = int(np.count_nonzero(decision.codes == FIRST_CRITERION + index))
                values = in_bound_units(criterion, compared[rows])
                sample = CriterionSample(
                    step=step, values=values, lower=criterion.lower, upper=criterion.upper, n_rejected=rejected
                )
                self.by_criterion.setdefault((criterion.statistic, criterion.pair, criterion.where), []).append(sample)

    @property
    def most_rejecting(self) -> CriterionKey | None:
        """The criterion that rejected most sequences, the first of equal ones; None if none applied."""
        return max(self.by_criterion, key=self.n_rejected, default=None)

    def n_rejected(self, key: CriterionKey) -> int:
        """Return the number of sequences for which a criterion was the first to reject."""
        return sum(sample.n_rejected for sample in self.by_criterion[key])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Distribution:
    """Counts [steps, bins] of sequences between ascending edges [bins + 1]; the outer bins include values beyond.

    `n_unknown` [steps] counts NaN; `lower` and `upper` [steps] are the active bounds, None without one.
    """

    steps: tuple[int, ...]
    edges: Array
    counts: Array
    n_unknown: tuple[int, ...]
    lower: tuple[float | None, ...]
    upper: tuple[float | None, ...]


def distribution(samples: Sequence[CriterionSample]) -> Distribution:
    """Return the distribution of a criterion's statistic over steps. Args: samples: one or more, by step."""
    bounds = [bound for sample in samples for bound in (sample.lower, sample.upper) if bound is not None]
    edges = _edges(np.concatenate([*(sample.values for sample in samples), bounds]))
    known = [sample.values[~np.isnan(sample.values)] for sample in samples]
    return Distribution(
        steps=tuple(sample.step for sample in samples),
        edges=edges,
        counts=np.stack([_counts(values, edges) for values in known]),
        n_unknown=tuple(len(sample.values) - len(values) for sample, values in zip(samples, known, strict=True)),
        lower=tuple(sample.lower for sample in samples),
        upper=tuple(sample.upper for sample in samples),
    )


def in_bound_units(criterion: Criterion, compared: Array) -> Array:
    """Return compared values, [N], in the units of the bounds; ratios are compared as logs."""
    with np.errstate(over="ignore"):
        return np.exp(compared) if criterion.measured.is_ratio else np.asarray(compared, float)


def _edges(values: Array) -> Array:
    """Return bin edges for values and bounds; logarithmic if they are positive and span orders of magnitude."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstToken:
    """One token: its sequence, its position in its row, both log-probs, and d, the trainer's minus the rollout's."""

    sequence: int
    position: int
    rollout_logprob: float
    trainer_logprob: float
    d: float
    token_id: int | None = None


def worst_tokens(rollout: Any, trainer: Any, *, sequences: Any, positions: Any, n: int) -> tuple[WorstToken, ...]:
    """Return the n tokens with the largest |d|, largest first.

    Args: rollout, trainer: log-probs [N], nats; sequences, positions: where each token is, [N].
    """
    d = trainer - rollout
    order = np.argsort(-np.abs(d), kind="stable")[:n]
    return tuple(
        WorstToken(
            sequence=int(sequences[at]),
            position=int(positions[at]),
            rollout_logprob=float(rollout[at]),
            trainer_logprob=float(trainer[at]),
            d=float(d[at]),
        )
        for at in order
    )
