"""What if: how another policy would have decided over stored sequences, added up report by report."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field, fields
from itertools import accumulate
from typing import Self

import numpy as np

from trmon_client.core.arrays import Array
from trmon_client.core.columns import Columns
from trmon_client.core.policies.criteria import NEEDS_PAIR
from trmon_client.core.policies.decision import decide
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError
from trmon_client.core.policies.token_whatif import affected_fractions


@dataclass(slots=True)
class _Sum:
    """Numbers that add up over parts."""

    def merge(self, other: Self) -> None:
        """Add those of another part."""
        for number in fields(self):
            setattr(self, number.name, getattr(self, number.name) + getattr(other, number.name))


@dataclass(slots=True)
class WeightTotal(_Sum):
    """The number of sequences, the sum of their weights w, and that of w^2."""

    n: int = 0
    sum: float = 0.0
    sum_sq: float = 0.0

    def add(self, weights: Array) -> None:
        """Add sequences. Args: weights: [N] float, finite, at least 0."""
        self.n += len(weights)
        self.sum += float(weights.sum())
        self.sum_sq += float(weights @ weights)

    @property
    def mean(self) -> float:
        """The mean weight: the accepted share if weights are 0 and 1; NaN without sequences."""
        return self.sum / self.n if self.n else math.nan

    @property
    def effective_share(self) -> float:
        """(sum w)^2/(N sum w^2), the accepted share under weights 0 and 1; NaN without any. Source: Kong (1992)."""
        if not self.n:
            return math.nan
        return self.sum * self.sum / (self.n * self.sum_sq) if self.sum_sq else 0.0


QUARTERS = 4
LENGTH_DIGITS = 3
"""Lengths are rounded to this many significant digits, so that memory stays bounded for long runs."""


@dataclass(slots=True)
class RejectedShare(_Sum):
    """The number of sequences, or of turns, and how many of them are rejected."""

    n: int = 0
    rejected: int = 0

    def add(self, rejected: Array) -> None:
        """Add sequences or turns. Args: rejected: [N] bool."""
        self.n += len(rejected)
        self.rejected += int(np.count_nonzero(rejected))

    @property
    def mask_rate(self) -> float:
        """rejected/n; NaN without sequences."""
        return self.rejected / self.n if self.n else math.nan


@dataclass(slots=True)
class MaskedTokenShare(_Sum):
    """The number of valid tokens, and how many of them a token rule would mask or truncate, from histograms."""

    n: float = 0.0
    at_least: float = 0.0
    estimate: float = 0.0
    at_most: float = 0.0

    def of(self, tokens: float) -> float:
        """Return a number of tokens as a fraction of all; NaN without tokens."""
        return tokens / self.n if self.n else math.nan


@dataclass(frozen=True, slots=True)
class LengthQuartile:
    """A quarter of the sequences by length, between two inclusive lengths in tokens; equal lengths share a quarter."""

    shortest: int
    longest: int
    share: RejectedShare


@dataclass(slots=True)
class CoveredRange:
    """The steps that an analysis covers, and how many of the requested steps are no longer stored."""

    first_step: int | None = None
    last_step: int | None = None
    n_steps: int = 0
    n_missing: int = 0

    def add(self, step: int, *, stored: bool) -> None:
        """Add a step."""
        range_of_step = CoveredRange(first_step=step, last_step=step, n_steps=1)
        self.merge(range_of_step if stored else CoveredRange(n_missing=1))

    def merge(self, other: CoveredRange) -> None:
        """Add the steps of another range, of the same run or another."""
        self.n_steps += other.n_steps
        self.n_missing += other.n_missing
        self.first_step = min(_known(self.first_step, other.first_step), default=None)
        self.last_step = max(_known(self.last_step, other.last_step), default=None)


@dataclass(slots=True)
class WhatIfEffect:
    """The effect of a policy on stored sequences, without empty ones.

    `turns`: the turns with valid tokens that its turn criteria reject; `tokens`: the effect of its token rules on the
    valid tokens, by rule; both of rejected sequences too. `weights`: those of the sequences under a soft policy, None
    under a hard one; `total` counts sequences beyond the bounds under both.
    `original` is the decision at that time; `undecided` counts the reports that lack data that the policy needs, by
    the missing data.
    """

    policy: Policy
    total: RejectedShare = field(default_factory=RejectedShare)
    original: RejectedShare = field(default_factory=RejectedShare)
    weights: WeightTotal | None = None
    reasons: Counter[str] = field(default_factory=Counter)
    positive: RejectedShare = field(default_factory=RejectedShare)
    negative: RejectedShare = field(default_factory=RejectedShare)
    undecided: Counter[str] = field(default_factory=Counter)
    turns: RejectedShare = field(default_factory=RejectedShare)
    tokens: dict[str, MaskedTokenShare] = field(default_factory=dict)
    _lengths: dict[int, RejectedShare] = field(default_factory=dict)

    def add(self, columns: Columns, *, accepted: Array) -> None:
        """Add one report. Args: accepted: [B] bool, the decision at that time."""
        try:
            decision = decide(columns, self.policy)
            n = float(columns["n_tokens"].sum())
            for rule, found in affected_fractions(columns, self.policy).items() if n else ():
                share = self.tokens.setdefault(rule, MaskedTokenShare())
                share.n += n
                share.at_least += n * found.at_least
                share.estimate += n * found.estimate
                share.at_most += n * found.at_most
        except PolicyError as error:
            self.undecided[str(error)] += 1
            return
        if not columns.pairs and self.policy.reads_pair:
            self.undecided[f"the policy {NEEDS_PAIR}"] += 1
            return
        counts = (columns["n_tokens"] > 0) | (columns["n_invalid"] > 0)
        rejected = ~decision.accepted[counts]
        self.total.add(rejected)
        self.original.add(~accepted[counts])
        if decision.soft_weights is not None:
            self.weights = self.weights or WeightTotal()
            self.weights.add(decision.soft_weights[counts])
        self.reasons.update({name: n for name, n in decision.counts().items() if name not in ("accepted", "empty")})
        if decision.turns is not None:
            self.turns.add(~decision.turns.accepted[decision.turns.turns.n_tokens > 0])
        lengths = columns["n_tokens"][counts]
        for length in np.unique(lengths):
            rounded = int(float(f"{int(length):.{LENGTH_DIGITS}g}"))
            self._lengths.setdefault(rounded, RejectedShare()).add(rejected[lengths == length])
        if "advantage" in columns:
            advantage = columns["advantage"][counts]
            self.positive.add(rejected[advantage > 0])
            self.negative.add(rejected[advantage < 0])

    def merge(self, other: WhatIfEffect) -> None:
        """Add what the same policy does to other sequences."""
        shares = ("total", "original", "positive", "negative", "turns")
        for name in shares:
            getattr(self, name).merge(getattr(other, name))
        if other.weights is not None:
            self.weights = self.weights or WeightTotal()
            self.weights.merge(other.weights)
        self.reasons.update(other.reasons)
        self.undecided.update(other.undecided)
        for rule, share in other.tokens.items():
            self.tokens.setdefault(rule, MaskedTokenShare()).merge(share)
        for length, of_length in other._lengths.items():
            self._lengths.setdefault(length, RejectedShare()).merge(of_length)

    def quarters(self) -> tuple[LengthQuartile, ...]:
        """Return the mask rates by quarter of length, shortest first, without empty quarters."""
        lengths = sorted(self._lengths)
        through = accumulate(self._lengths[length].n for length in lengths)
        groups: dict[int, list[int]] = {}
        for length, n_through in zip(lengths, through, strict=True):
            # Sequences of equal length belong to the quarter of their middle one.
            middle = n_through - self._lengths[length].n / 2
            groups.setdefault(int(QUARTERS * middle / self.total.n), []).append(length)
        return tuple(LengthQuartile(group[0], group[-1], self._share_of(group)) for group in groups.values())

    def _share_of(self, lengths: list[int]) -> RejectedShare:
        parts = [self._lengths[length] for length in lengths]
        return RejectedShare(sum(part.n for part in parts), sum(part.rejected for part in parts))


def _known(*steps: int | None) -> list[int]:
    return [step for step in steps if step is not None]
