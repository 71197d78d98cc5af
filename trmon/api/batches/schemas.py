"""Batches, their decisions and their sequences in answers."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, Field

from trmon.api.http.json_numbers import Number
from trmon.domain.batches.batch import BatchRow, DecisionRow, PolicyRole
from trmon.domain.batches.quarantine import QuarantinePart
from trmon_client.core.policies.acceptance import Criterion


class DecisionOut(BaseModel):
    """What one policy decided over a batch; counts by reason, `accepted` among them."""

    policy: str
    hash: str
    role: PolicyRole
    counts: dict[str, int]
    mask_rate: Number

    @classmethod
    def of(cls, row: DecisionRow) -> Self:
        """Return a decision as answered."""
        return cls(
            policy=row.policy_name,
            hash=row.policy_hash,
            role=row.role,
            counts=row.counts,
            mask_rate=row.mask_rate,
        )


class QuarantinedOut(BaseModel):
    """One part of a batch that could not be processed."""

    part: QuarantinePart
    place: str
    reason: str


class BatchOut(BaseModel):
    """One closed batch: its place, how complete it is, its signals and the trainer's scalars."""

    attempt_id: int
    step: int
    update: int | None = Field(description="Null is the whole rollout batch, before its updates.")
    ordinal: int
    closed_at: float
    n_sequences: int
    n_tokens: int
    n_ranks: int
    missing_ranks: list[int]
    complete: bool
    revised: bool
    mode: str
    primary_pair: str
    kl_is: str
    policy_hash: str | None
    mismatches: int
    signals: dict[str, Number]
    scalars: dict[str, Number]
    quarantined: list[QuarantinedOut] = Field(description="What could not be processed and was left out.")

    @classmethod
    def of(cls, row: BatchRow) -> Self:
        """Return a batch as answered."""
        return cls(
            attempt_id=row.key.attempt_id,
            step=row.key.step,
            update=row.key.update,
            ordinal=row.ordinal,
            closed_at=row.closed_at,
            n_sequences=row.n_sequences,
            n_tokens=row.n_tokens,
            n_ranks=row.n_ranks,
            missing_ranks=list(row.missing_ranks),
            complete=row.complete,
            revised=row.revised,
            mode=row.mode,
            primary_pair=row.primary_pair,
            kl_is=row.kl_is,
            policy_hash=row.policy_hash,
            mismatches=row.mismatches,
            signals=row.signals,
            scalars=row.scalars,
            quarantined=[
                QuarantinedOut(part=entry.part, place=entry.place, reason=entry.reason) for entry in row.quarantined
            ],
        )


class SequenceDecisions(BaseModel):
    """What one policy decided over some sequences, in their order."""

    policy: str
    hash: str
    role: PolicyRole
    accepted: list[bool]
    reasons: list[str | None] = Field(description="The first reason of each rejection; null where accepted.")


class CriterionValues(BaseModel):
    """What one criterion of the active policy read of some sequences, in their order, and its bounds."""

    statistic: str
    pair: str
    where: str | None
    lower: Number | None
    upper: Number | None
    values: list[Number]

    @classmethod
    def of(cls, criterion: Criterion, values: list[float]) -> Self:
        """Return a criterion's values as answered."""
        return cls(
            statistic=criterion.statistic,
            pair=criterion.pair,
            where=criterion.where,
            lower=criterion.lower,
            upper=criterion.upper,
            values=values,
        )


class SequencesOut(BaseModel):
    """Some sequences of a batch in the order (rank, chunk, row): their columns and every policy's decision."""

    first: int = Field(description="The place of the first one in the batch.")
    n_sequences: int = Field(description="How many the batch has.")
    columns: dict[str, list[Number]]
    decisions: list[SequenceDecisions]
    criteria: list[CriterionValues] = Field(description="Those of the active policy that applied.")
