"""Response schemas of batches, their decisions and their sequences."""

from __future__ import annotations

from typing import Self

from pydantic import Field

from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel
from trmon.domain.batches.batch import BatchRow, DecisionRow, PolicyRole
from trmon.domain.batches.quarantine import QuarantinePart


class DecisionOut(ResponseModel):
    """The decision of one policy over a batch; `counts` has the accepted sequences and each reason for rejection."""

    policy: str
    hash: str
    role: PolicyRole
    counts: dict[str, int]
    mask_rate: Number

    @classmethod
    def of(cls, row: DecisionRow) -> Self:
        """Return the response for a decision."""
        return cls.from_fields(row, policy=row.policy_name, hash=row.policy_hash)


class QuarantinedOut(ResponseModel):
    """A part of a batch that could not be processed."""

    part: QuarantinePart
    place: str
    reason: str


class BatchOut(ResponseModel):
    """A closed batch: its step, its completeness, its signals and the trainer's scalars."""

    attempt_id: int
    step: int
    update: int | None = Field(description="Null for the whole rollout batch, before its updates.")
    ordinal: int
    closed_at: float
    n_sequences: int
    n_tokens: int
    n_ranks: int
    missing_ranks: list[int]
    complete: bool | None = Field(
        description="Null if unknown: a rank has not said how many chunks it sent, as after a crash."
    )
    revised: bool
    mode: str
    primary_pair: str | None = Field(description="Null if fewer than two log-probs were given.")
    kl_is: str
    policy_hash: str | None
    mismatches: int
    signals: dict[str, Number]
    scalars: dict[str, Number]
    quarantined: list[QuarantinedOut] = Field(description="Parts that could not be processed and were left out.")

    @classmethod
    def of(cls, row: BatchRow) -> Self:
        """Return the response for a batch."""
        key = row.key
        return cls.from_fields(
            row, attempt_id=key.attempt_id, step=key.step, update=key.update, complete=row.known_complete
        )


class SequenceDecisions(ResponseModel):
    """The decisions of one policy over the selected sequences, in their order."""

    policy: str
    hash: str
    role: PolicyRole
    accepted: list[bool]
    reasons: list[str | None] = Field(description="The first reason for each rejection; null for accepted sequences.")


class CriterionValues(ResponseModel):
    """The values that a criterion of the active policy compared, in the order of the sequences, and its bounds."""

    statistic: str
    pair: str
    where: str | None
    lower: Number | None
    upper: Number | None
    values: list[Number]


class TurnCounts(ResponseModel):
    """How many turns the selected sequences have, in their order, and how many of them the active policy rejects."""

    n_turns: list[int]
    n_rejected: list[int] | None = Field(description="Null if the active policy has no turn criteria.")


class TurnCriterionValues(ResponseModel):
    """The values that a turn criterion of the active policy compared, in the order of the turns, and its bounds."""

    statistic: str
    pair: str
    lower: Number | None
    upper: Number | None
    values: list[Number]


class TurnsOut(ResponseModel):
    """The turns of one sequence in order: their columns and the decision of the active policy."""

    columns: dict[str, list[Number]]
    accepted: list[bool] | None = Field(description="Null if the active policy has no turn criteria.")
    reasons: list[str | None] | None = Field(
        description="The first reason for each rejection, `empty` for a turn without valid tokens."
    )
    criteria: list[TurnCriterionValues]


class SequencesOut(ResponseModel):
    """Sequences of a batch ordered by (rank, chunk, row): their columns and the decisions of each policy."""

    first: int = Field(description="The index of the first returned sequence in the batch.")
    n_sequences: int = Field(description="The number of sequences in the batch.")
    columns: dict[str, list[Number]]
    decisions: list[SequenceDecisions]
    criteria: list[CriterionValues] = Field(description="The criteria of the active policy that applied.")
    turn_counts: TurnCounts | None = Field(description="Null if the trainer gave no turns.")
    turns: list[TurnsOut] | None = Field(description="The turns of each returned sequence, if `turns` asks for them.")
