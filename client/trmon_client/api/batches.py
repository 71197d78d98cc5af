"""Closed batches of a run: their decisions, sequences and turns, and what policies rejected, step by step."""

from __future__ import annotations

from typing import Annotated

from trmon_client.api.answers import AnswerInfo, ApiNumber, PolicyRole, QuarantinePart, says


class DecisionInfo(AnswerInfo, frozen=True, kw_only=True):
    """The decision of one policy over a batch; `counts` has the accepted sequences and each reason for rejection."""

    policy: str
    hash: str
    role: PolicyRole
    counts: dict[str, int]
    mask_rate: ApiNumber


class QuarantinedInfo(AnswerInfo, frozen=True, kw_only=True):
    """A part of a batch that could not be processed."""

    part: QuarantinePart
    place: str
    reason: str


class BatchInfo(AnswerInfo, frozen=True, kw_only=True):
    """A closed batch: its step, its completeness, its signals and the trainer's scalars."""

    attempt_id: int
    step: int
    update: Annotated[int | None, says("Null for the whole rollout batch, before its updates.")]
    ordinal: int
    closed_at: float
    n_sequences: int
    n_tokens: int
    n_ranks: int
    missing_ranks: tuple[int, ...]
    complete: Annotated[
        bool | None, says("Null if unknown: a rank has not said how many chunks it sent, as after a crash.")
    ]
    revised: bool
    mode: str
    primary_pair: Annotated[str | None, says("Null if fewer than two log-probs were given.")]
    kl_is: str
    policy_hash: str | None
    mismatches: int
    signals: dict[str, ApiNumber]
    scalars: dict[str, ApiNumber]
    quarantined: Annotated[tuple[QuarantinedInfo, ...], says("Parts that could not be processed and were left out.")]


class SequenceDecisionsInfo(AnswerInfo, frozen=True, kw_only=True):
    """The decisions of one policy over the selected sequences, in their order."""

    policy: str
    hash: str
    role: PolicyRole
    accepted: tuple[bool, ...]
    reasons: Annotated[
        tuple[str | None, ...], says("The first reason for each rejection; null for accepted sequences.")
    ]


class CriterionValuesInfo(AnswerInfo, frozen=True, kw_only=True):
    """The values that a criterion of the active policy compared, in the order of the sequences, and its bounds."""

    statistic: str
    pair: str
    where: str | None
    lower: ApiNumber | None
    upper: ApiNumber | None
    values: tuple[ApiNumber, ...]


class TurnCountsInfo(AnswerInfo, frozen=True, kw_only=True):
    """How many turns the selected sequences have, in their order, and how many of them the active policy rejects."""

    n_turns: tuple[int, ...]
    n_rejected: Annotated[tuple[int, ...] | None, says("Null if the active policy has no turn criteria.")]


class TurnCriterionValuesInfo(AnswerInfo, frozen=True, kw_only=True):
    """The values that a turn criterion of the active policy compared, in the order of the turns, and its bounds."""

    statistic: str
    pair: str
    lower: ApiNumber | None
    upper: ApiNumber | None
    values: tuple[ApiNumber, ...]


class TurnsInfo(AnswerInfo, frozen=True, kw_only=True):
    """The turns of one sequence in order: their columns and the decision of the active policy."""

    columns: dict[str, tuple[ApiNumber, ...]]
    accepted: Annotated[tuple[bool, ...] | None, says("Null if the active policy has no turn criteria.")]
    reasons: Annotated[
        tuple[str | None, ...] | None,
        says("The first reason for each rejection, `empty` for a turn without valid tokens."),
    ]
    criteria: tuple[TurnCriterionValuesInfo, ...]


class SequencesInfo(AnswerInfo, frozen=True, kw_only=True):
    """Sequences of a batch ordered by (rank, chunk, row): their columns and the decisions of each policy."""

    first: Annotated[int, says("The index of the first returned sequence in the batch.")]
    n_sequences: Annotated[int, says("The number of sequences in the batch.")]
    columns: dict[str, tuple[ApiNumber, ...]]
    decisions: tuple[SequenceDecisionsInfo, ...]
    criteria: Annotated[tuple[CriterionValuesInfo, ...], says("The criteria of the active policy that applied.")]
    turn_counts: Annotated[TurnCountsInfo | None, says("Null if the trainer gave no turns.")]
    turns: Annotated[
        tuple[TurnsInfo, ...] | None, says("The turns of each returned sequence, if `turns` asks for them.")
    ]


class ReasonsInfo(AnswerInfo, frozen=True, kw_only=True):
    """The fraction of rejected sequences by step."""

    steps: tuple[int, ...]
    mask_rate: tuple[ApiNumber, ...]
    reasons: Annotated[
        dict[str, tuple[float, ...]], says("For each reason, its fraction at each step; they sum to the mask rate.")
    ]


class CriterionInfo(AnswerInfo, frozen=True, kw_only=True):
    """A criterion that applied in these steps, and how many sequences it rejected first."""

    statistic: str
    pair: str
    where: str | None
    n_rejected: int


class DistributionInfo(AnswerInfo, frozen=True, kw_only=True):
    """Histograms of a criterion's statistic over the sequences of each step, and the bounds active then."""

    criteria: Annotated[tuple[CriterionInfo, ...], says("The criteria that can be requested.")]
    chosen: Annotated[
        CriterionInfo | None, says("The requested criterion, or the one that rejected most; null if none applied.")
    ]
    steps: tuple[int, ...]
    edges: Annotated[tuple[ApiNumber, ...], says("Ascending; the outer bins include values beyond them.")]
    counts: Annotated[tuple[tuple[int, ...], ...], says("For each step, one count per bin.")]
    n_unknown: Annotated[tuple[int, ...], says("The number of sequences of each step whose statistic is NaN.")]
    lower: tuple[ApiNumber | None, ...]
    upper: tuple[ApiNumber | None, ...]
    n_steps_without_reports: Annotated[int, says("The number of selected steps whose sequences are no longer stored.")]
