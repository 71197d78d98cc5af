"""The alpha split: how much of what drifted is engine mismatch and how much is staleness."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import Pair
from trmon_client.core.columns.sequence_matrix import SequenceMatrix


@dataclass(frozen=True, slots=True)
class AlphaSplit:
    """Lower bounds of [3P]'s worst-case total variations, each nan where its pair or every token is missing.

    `staleness` is alpha_0's, of pi from pi_old; `mismatch` is alpha_1's, of pi_old from mu. The penalty grows with
    the sum of the alphas. Replaying a router's choices hides alpha, it does not shrink it.
    """

    staleness: float
    mismatch: float

    @classmethod
    def of_signals(cls, signals: Mapping[str, float]) -> AlphaSplit:
        """Return the split that a batch's signals show."""
        return cls(
            staleness=signals.get("staleness_prob_diff_max", math.nan),
            mismatch=signals.get("mismatch_prob_diff_max", math.nan),
        )

    @property
    def mismatch_share(self) -> float:
        """The share of mismatch in the sum of the lower bounds, in [0, 1]; nan if both are 0 or one is unknown."""
        total = self.staleness + self.mismatch
        return self.mismatch / total if total else math.nan

    @property
    def staleness_share(self) -> float:
        """The rest of it."""
        return 1.0 - self.mismatch_share


def alpha_split(columns: Columns) -> AlphaSplit:
    """Return the largest gap of token probabilities of both pairs: each is at most the pair's worst-case TV.

    Source: [3P] theorem 2; formulas, section 7.
    """
    sequences = SequenceMatrix.of(columns.numpy())
    return AlphaSplit(staleness=_largest_gap(sequences, "staleness"), mismatch=_largest_gap(sequences, "mismatch"))


def _largest_gap(sequences: SequenceMatrix, pair: Pair) -> float:
    if pair not in sequences.columns.pairs:
        return math.nan
    return float(sequences.matrix((f"{pair}_max_prob_diff",)).max())
