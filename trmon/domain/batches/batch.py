"""A closed batch: what is kept of it for ever."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

import msgspec
from msgspec import structs

from trmon.domain.batches.quarantine import Quarantined
from trmon.domain.model.identity import BatchKey
from trmon_client.core.columns.schema import KlIs, Pair

QUARANTINED_PARTS = "quarantined_parts"
"""The signal that counts what of a batch could not be processed."""


class PolicyRole(Enum):
    """Whether a policy's decision was returned to the trainer or only recorded."""

    ACTIVE = "active"
    SHADOW = "shadow"


class BatchRow(msgspec.Struct, frozen=True, kw_only=True):
    """One (attempt, step, update) after its ranks were merged.

    `ordinal` counts a run's batches in the order in which they were folded, from 1; a revision keeps it.
    `signals` are formulas section 5 and the service's own (mask_rate, response_length_growth), NaN where
    uncomputable; `scalars` are the trainer's. `last_report_id` is the newest report in it. `quarantined` names what of
    the batch could not be processed.
    """

    run_id: int
    key: BatchKey
    ordinal: int
    closed_at: float
    n_sequences: int
    n_tokens: int
    n_ranks: int
    missing_ranks: tuple[int, ...]
    complete: bool
    revised: bool
    mode: str
    primary_pair: Pair
    kl_is: KlIs
    policy_hash: str | None
    mismatches: int
    last_report_id: int
    signals: dict[str, float]
    scalars: dict[str, float]
    quarantined: tuple[Quarantined, ...] = ()

    def without(self, parts: Iterable[Quarantined]) -> BatchRow:
        """Return the row with more parts set aside; rules read how many they are."""
        known = tuple(dict.fromkeys((*self.quarantined, *parts)))
        signals = {**self.signals, QUARANTINED_PARTS: float(len(known))}
        return structs.replace(self, quarantined=known, signals=signals)


class DecisionRow(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy decided over one batch; bits in the order of its sequences (rank, chunk, row)."""

    key: BatchKey
    policy_hash: str
    policy_name: str
    role: PolicyRole
    counts: dict[str, int]
    mask_rate: float
    accepted: bytes
