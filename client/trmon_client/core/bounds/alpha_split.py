"""The alpha split: the shares of engine mismatch and of staleness in the total drift."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from trmon_client.core.columns.columns import Columns
from trmon_client.core.columns.schema import Pair
from trmon_client.core.columns.sequence_matrix import SequenceMatrix


@dataclass(frozen=True, slots=True)
class AlphaSplit:
    """Lower bounds of the worst-case total variations of [3P]; nan where the pair is not given or no token is valid.

    `staleness` bounds alpha_0, between pi and pi_old; `mismatch` bounds alpha_1, between pi_old and mu. The penalty
    grows with the sum of the alphas. Replaying a router's choices hides alpha and does not reduce it.
    """

    staleness: float
    mismatch: float

    @classmethod
    def of_signals(cls, signals: Mapping[str, float]) -> AlphaSplit:
        """Return the split computed from the signals of a batch."""
        return cls(
            staleness=signals.get("staleness_prob_diff_max", math.nan),
            mismatch=signals.get("mismatch_prob_diff_max", math.nan),
        )

    @property
    def mismatch_share(self) -> float:
        """The share of mismatch in the sum of the bounds, in [0, 1]; nan if both are 0 or one is unknown."""
        total = self.staleness + self.mismatch
        return self.mismatch / total if total else math.nan

    @property
    def staleness_share(self) -> float:
        """The share of staleness in the sum of the bounds, 1 - mismatch_share."""
        return 1.0 - self.mismatch_share


def alpha_split(columns: Columns) -> AlphaSplit:
    """Return the largest difference of token probabilities for each pair; it is at most the worst-case TV.

    Source: [3P] theorem 2; formulas, section 7.
    """
    sequences = SequenceMatrix.of(columns.numpy())
    return AlphaSplit(staleness=_max_prob_diff(sequences, "staleness"), mismatch=_max_prob_diff(sequences, "mismatch"))


def _max_prob_diff(sequences: SequenceMatrix, pair: Pair) -> float:
    if pair not in sequences.columns.pairs:
        return math.nan
    return float(sequences.matrix((f"{pair}_max_prob_diff",)).max())
