"""A sample: what a policy's criteria read of many sequences, the newest of a run."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from trmon_client.core.columns.columns import Array, Columns
from trmon_client.core.policies.acceptance import Criterion, Policy, decide


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PolicySample:
    """N sequences that have tokens, none of them invalid, as C criteria read them.

    `readings` [N, C] float64, logs for ratios, NaN where the data cannot tell; `judged` [N, C] bool: where the
    criterion applies; `n_tokens` [N]; `kl_nats` [N], KL of the whole sequence, NaN unless it is exact; `n_invalid`
    counts sequences left out, which are rejected whatever the bounds.
    """

    readings: Array
    judged: Array
    n_tokens: Array
    kl_nats: Array
    n_invalid: int

    def __len__(self) -> int:
        return len(self.n_tokens)

    @property
    def has_nan(self) -> bool:
        """Whether some log-probs, or what a criterion makes of them, are no numbers."""
        return self.n_invalid > 0 or bool(np.isnan(self.readings[self.judged]).any())

    @classmethod
    def of(cls, columns: Columns, policy: Policy) -> PolicySample:
        """Return what a policy reads of a batch. Errors: PolicyError naming the argument that is missing."""
        compared = decide(columns, policy).compared
        read = [_read(columns, *pair) for pair in zip(policy.criteria, compared, strict=True)]
        is_exact = columns.kl_is == "exact" and "sum_kl" in columns
        kl = columns["sum_kl"] if is_exact else np.full(columns.n_sequences, math.nan)
        rows = (columns["n_tokens"] > 0) & (columns["n_invalid"] == 0)
        return cls(
            readings=_stacked([readings for readings, _ in read], columns.n_sequences)[rows],
            judged=_stacked([judged for _, judged in read], columns.n_sequences).astype(bool)[rows],
            n_tokens=columns["n_tokens"][rows],
            kl_nats=kl[rows],
            n_invalid=int((columns["n_invalid"] > 0).sum()),
        )

    @classmethod
    def merge(cls, parts: Iterable[PolicySample]) -> PolicySample:
        """Return all parts' sequences, in order. Args: parts: at least one, of the same criteria."""
        parts = list(parts)
        return cls(
            readings=np.concatenate([part.readings for part in parts]),
            judged=np.concatenate([part.judged for part in parts]),
            n_tokens=np.concatenate([part.n_tokens for part in parts]),
            kl_nats=np.concatenate([part.kl_nats for part in parts]),
            n_invalid=sum(part.n_invalid for part in parts),
        )


def policy_reads(policy: Policy) -> tuple[tuple[str, str, str | None], ...]:
    """Return what a policy reads, whatever its bounds: samples of policies that read the same can be merged."""
    return tuple((criterion.statistic, criterion.pair, criterion.where) for criterion in policy.criteria)


def _read(columns: Columns, criterion: Criterion, compared: Array | None) -> tuple[Array, Array]:
    if compared is None:
        nothing = np.zeros(columns.n_sequences)
        return nothing, nothing
    if criterion.where != "advantage_negative":
        return compared, np.ones(columns.n_sequences)
    advantage = columns["advantage"]
    return np.where(np.isnan(advantage), math.nan, compared), ~(advantage >= 0)


def _stacked(rows: list[Array], n_sequences: int) -> Array:
    return np.stack(rows, axis=1) if rows else np.zeros((n_sequences, 0))
