"""The mean weight and the effective share of weighted sequences, added up batch by batch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trmon_client.core.columns.columns import Array


@dataclass(slots=True)
class WeightTotal:
    """The number of sequences, the sum of their weights w, and that of w^2."""

    n: int = 0
    sum: float = 0.0
    sum_sq: float = 0.0

    def add(self, weights: Array) -> None:
        """Add sequences. Args: weights: [N] float, finite, at least 0."""
        self.n += len(weights)
        self.sum += float(weights.sum())
        self.sum_sq += float(weights @ weights)

    def merge(self, other: WeightTotal) -> None:
        """Add those of another total."""
        self.n += other.n
        self.sum += other.sum
        self.sum_sq += other.sum_sq

    @property
    def mean(self) -> float:
        """The mean weight: the accepted share if weights are 0 and 1; NaN without sequences."""
        return self.sum / self.n if self.n else math.nan

    @property
    def effective_share(self) -> float:
        """(sum w)^2/(N sum w^2): the accepted share if weights are 0 and 1, and 0 if all are 0; NaN without sequences.

        Source: Kong (1992).
        """
        if not self.n:
            return math.nan
        return self.sum * self.sum / (self.n * self.sum_sq) if self.sum_sq else 0.0
