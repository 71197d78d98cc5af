"""The JSON of `trmon preflight`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Self

from pydantic import Field

from trmon.api.diagnosis_schemas import EvidenceOut, MissingOut, RemedyOut
from trmon.api.http.json_numbers import Number
from trmon.api.http.response_model import ResponseModel
from trmon.domain.model.finding import Finding
from trmon.domain.preflight.preflight import FoundCause, PreflightCause, PreflightResult
from trmon.domain.preflight.token_pairs import TvIs


class CauseOut(ResponseModel):
    """A cause that was found, the finding that it becomes in a run, and what to do."""

    cause: PreflightCause
    finding: Finding
    detail: str
    fix: str
    evidence: list[EvidenceOut]
    remedy: RemedyOut

    @classmethod
    def of(cls, found: FoundCause) -> Self:
        """Return the part of the answer for a cause."""
        return cls.from_fields(found, finding=found.cause.finding, fix=found.fix)


class IdDifferenceOut(ResponseModel):
    """The first token whose id differs."""

    sequence: int
    position: int
    rollout_id: int | None
    trainer_id: int | None


class UnknownOut(ResponseModel):
    """A finding that could not be decided, and what it needs."""

    finding: Finding
    missing: list[MissingOut]


class WorstTokenOut(ResponseModel):
    """A token on which the engines differ much; positions are those of the trainer's row."""

    sequence: int
    position: int
    token_id: int | None
    rollout_logprob: Number
    trainer_logprob: Number
    d: Number


class LimitsOut(ResponseModel):
    """The limits that the pair had to keep."""

    max_abs_d: Number
    tv_p95: Number
    equal_share: Number


class PreflightOut(ResponseModel):
    """What was measured over the tokens that both engines score, and the causes."""

    passed: bool
    sequences: int
    tokens: int = Field(description="Tokens that could be compared.")
    equal_share: Number = Field(description="Share of the log-probs that are equal as float32.")
    max_abs_d: Number = Field(description="Largest |d|, nats.")
    tv_p95: Number = Field(description="95th percentile of the total variation of tokens.")
    tv_is: TvIs = Field(description="Exact from logits, or a lower bound from the sampled tokens.")
    trainer_mass_outside: Number | None = Field(
        description="Mean probability of the trainer outside the rollout's support; null without logits."
    )
    temperature_slope: Number = Field(description="How far the ratio of two temperatures is from 1, at least.")
    temperature_corr: Number = Field(description="Correlation of d with the rollout's log-prob.")
    signals: dict[str, Number] = Field(description="Signals of the pair mismatch.")
    token_ids_compared: bool
    retokenised_sequences: int | None
    first_id_difference: IdDifferenceOut | None
    padding_rollout_only: int
    padding_trainer_only: int
    shift: int = Field(description="By how many positions the rollout's log-probs fit too late.")
    rollout_missing: int
    trainer_missing: int
    rollout_no_probability: int
    trainer_no_probability: int
    rollout_zeros: int
    trainer_zeros: int
    limits: LimitsOut
    causes: list[CauseOut]
    unknown: list[UnknownOut]
    worst: list[WorstTokenOut]

    @classmethod
    def of(cls, result: PreflightResult) -> Self:
        """Return the answer for a result."""
        alignment, counts = result.alignment, result.counts
        return cls.from_fields(
            result,
            causes=[CauseOut.of(found) for found in result.causes],
            token_ids_compared=alignment.n_retokenised is not None,
            retokenised_sequences=alignment.n_retokenised,
            first_id_difference=alignment.first_difference,
            padding_rollout_only=alignment.rollout_only,
            padding_trainer_only=alignment.trainer_only,
            shift=alignment.shift,
            **asdict(counts),
        )
