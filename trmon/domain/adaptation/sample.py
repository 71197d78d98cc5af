"""Samples: the statistics that a policy's criteria compare, over the newest sequences of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from trmon_client.core.columns.columns import Array, Columns
from trmon_client.core.policies.criterion import Criterion
from trmon_client.core.policies.decide import decide
from trmon_client.core.policies.pair_choice import NEEDS_PAIR
from trmon_client.core.policies.policy import Policy
from trmon_client.core.policies.sequence_statistics import PolicyError


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PolicySample:
    """The statistics of N valid, non-empty sequences for the C criteria of a policy.

    `statistics` [N, C] float64, logs for ratios, NaN if unknown; `applies` [N, C] bool: whether the criterion applies;
    `n_tokens` [N]; `kl_nats` [N], KL of the whole sequence, NaN unless it is exact; `n_invalid` counts invalid
    sequences, which are left out, since every policy rejects them.
    """

    statistics: Array
    applies: Array
    n_tokens: Array
    kl_nats: Array
    n_invalid: int

    def __len__(self) -> int:
        return len(self.n_tokens)

    @property
    def has_nan(self) -> bool:
        """Whether some log-probs are invalid, or a statistic of them is NaN."""
        return self.n_invalid > 0 or bool(np.isnan(self.statistics[self.applies]).any())

    @classmethod
    def of(cls, columns: Columns, policy: Policy) -> PolicySample:
        """Return the sample of a batch. Errors: PolicyError naming the missing argument, also without any pair."""
        if not columns.pairs and policy.reads_pair:
            raise PolicyError(f"the policy {NEEDS_PAIR}")
        compared = decide(columns, policy).compared
        read = [_read(columns, *pair) for pair in zip(policy.criteria, compared, strict=True)]
        is_exact = columns.kl_is == "exact" and "sum_kl" in columns
        kl = columns["sum_kl"] if is_exact else np.full(columns.n_sequences, math.nan)
        rows = (columns["n_tokens"] > 0) & (columns["n_invalid"] == 0)
        return cls(
            statistics=_stacked([statistics for statistics, _ in read], columns.n_sequences)[rows],
            applies=_stacked([applies for _, applies in read], columns.n_sequences).astype(bool)[rows],
            n_tokens=columns["n_tokens"][rows],
            kl_nats=kl[rows],
            n_invalid=int((columns["n_invalid"] > 0).sum()),
        )

    @classmethod
    def merge(cls, parts: Iterable[PolicySample]) -> PolicySample:
        """Return the sequences of all parts, in order. Args: parts: one or more, of the same criteria."""
        parts = list(parts)
        return cls(
            statistics=np.concatenate([part.statistics for part in parts]),
            applies=np.concatenate([part.applies for part in parts]),
            n_tokens=np.concatenate([part.n_tokens for part in parts]),
            kl_nats=np.concatenate([part.kl_nats for part in parts]),
            n_invalid=sum(part.n_invalid for part in parts),
        )


def policy_reads(policy: Policy) -> tuple[tuple[str, str, str | None], ...]:
    """Return the criteria of a policy without their bounds; samples with equal criteria can be merged."""
    return tuple((criterion.statistic, criterion.pair, criterion.where) for criterion in policy.criteria)


def _read(columns: Columns, criterion: Criterion, compared: Array | None) -> tuple[Array, Array]:
    if compared is None:
        nothing = np.zeros(columns.n_sequences)
        return nothing, nothing
    if not criterion.by_advantage:
        return compared, np.ones(columns.n_sequences)
    advantage = columns["advantage"]
    unknown = np.isnan(advantage)
    return np.where(unknown, math.nan, compared), unknown | criterion.has_sign(advantage)


def _stacked(rows: list[Array], n_sequences: int) -> Array:
    return np.stack(rows, axis=1) if rows else np.zeros((n_sequences, 0))
