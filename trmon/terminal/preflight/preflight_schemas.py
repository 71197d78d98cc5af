"""The JSON of `trmon preflight`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from msgspec import Meta

from trmon.domain.finding import Finding
from trmon.domain.preflight.preflight import FoundCause, PreflightCause, PreflightResult
from trmon.domain.preflight.token_pairs import TvIs
from trmon_client.api.answers import AnswerInfo, ApiNumber
from trmon_client.api.diagnosis import EvidenceInfo, MissingInfo, RemedyInfo


class CauseInfo(AnswerInfo, frozen=True, kw_only=True):
    """A cause that was found, the finding that it becomes in a run, and what to do."""

    cause: PreflightCause
    finding: Finding
    detail: str
    fix: str
    evidence: tuple[EvidenceInfo, ...]
    remedy: RemedyInfo


class IdDifferenceInfo(AnswerInfo, frozen=True, kw_only=True):
    """The first token whose id differs."""

    sequence: int
    position: int
    rollout_id: int | None
    trainer_id: int | None


class UnknownInfo(AnswerInfo, frozen=True, kw_only=True):
    """A finding that could not be decided, and what it needs."""

    finding: Finding
    missing: tuple[MissingInfo, ...]


class WorstTokenInfo(AnswerInfo, frozen=True, kw_only=True):
    """A token on which the engines differ much; positions are those of the trainer's row."""

    sequence: int
    position: int
    token_id: int | None
    rollout_logprob: ApiNumber
    trainer_logprob: ApiNumber
    d: ApiNumber


class LimitsInfo(AnswerInfo, frozen=True, kw_only=True):
    """The limits that the pair had to keep."""

    max_abs_d: ApiNumber
    tv_p95: ApiNumber
    equal_share: ApiNumber


class PreflightInfo(AnswerInfo, frozen=True, kw_only=True):
    """What was measured over the tokens that both engines score, and the causes."""

    passed: bool
    sequences: int
    tokens: Annotated[int, Meta(description="Tokens that could be compared.")]
    equal_share: Annotated[ApiNumber, Meta(description="Share of the log-probs that are equal as float32.")]
    max_abs_d: Annotated[ApiNumber, Meta(description="Largest |d|, nats.")]
    tv_p95: Annotated[ApiNumber, Meta(description="95th percentile of the total variation of tokens.")]
    tv_is: Annotated[TvIs, Meta(description="Exact from logits, or a lower bound from the sampled tokens.")]
    trainer_mass_outside: Annotated[
        ApiNumber | None,
        Meta(description="Mean probability of the trainer outside the rollout's support; null without logits."),
    ]
    temperature_slope: Annotated[
        ApiNumber, Meta(description="How far the ratio of two temperatures is from 1, at least.")
    ]
    temperature_corr: Annotated[ApiNumber, Meta(description="Correlation of d with the rollout's log-prob.")]
    signals: Annotated[dict[str, ApiNumber], Meta(description="Signals of the pair mismatch.")]
    token_ids_compared: bool
    retokenised_sequences: int | None
    first_id_difference: IdDifferenceInfo | None
    padding_rollout_only: int
    padding_trainer_only: int
    shift: Annotated[int, Meta(description="By how many positions the rollout's log-probs fit too late.")]
    rollout_missing: int
    trainer_missing: int
    rollout_no_probability: int
    trainer_no_probability: int
    rollout_zeros: int
    trainer_zeros: int
    limits: LimitsInfo
    causes: tuple[CauseInfo, ...]
    unknown: tuple[UnknownInfo, ...]
    worst: tuple[WorstTokenInfo, ...]


def _cause_info(found: FoundCause) -> CauseInfo:
    """Return the part of the answer for a cause."""
    return CauseInfo.from_fields(found, finding=found.cause.finding, fix=found.fix)


def preflight_info(result: PreflightResult) -> PreflightInfo:
    """Return the answer for a result."""
    alignment, counts = result.alignment, result.counts
    return PreflightInfo.from_fields(
        result,
        causes=[_cause_info(found) for found in result.causes],
        token_ids_compared=alignment.n_retokenised is not None,
        retokenised_sequences=alignment.n_retokenised,
        first_id_difference=alignment.first_difference,
        padding_rollout_only=alignment.rollout_only,
        padding_trainer_only=alignment.trainer_only,
        shift=alignment.shift,
        **asdict(counts),
    )
