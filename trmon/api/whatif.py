"""What another policy would have masked in a run's stored sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Self

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.json_numbers import Number
from trmon.api.http.parameters import Named
from trmon.api.policies import Spec, parse_policy
from trmon.domain.analysis.whatif import (
    CoveredRange,
    LengthQuartile,
    MaskedTokenShare,
    RejectedShare,
    WeightTotal,
    WhatIfEffect,
)
from trmon.domain.model.access import Access
from trmon.domain.model.identity import BatchKey, RunKey
from trmon.domain.model.messages import decode_reports
from trmon_client.core.columns import Columns
from trmon_client.core.wire import unpack_bits

MAX_STEPS = 1_000_000


class Question(BaseModel):
    """A policy to try, and the steps to try it on; by default the newest 1,000 of the run."""

    model_config = ConfigDict(extra="forbid")

    policy: Spec = Field(examples=["geo_mask"])
    attempt_id: int | None = Field(None, ge=0, lt=1 << 62, description="Only this attempt, by its id.")
    from_step: int | None = Field(None, ge=0, lt=1 << 62)
    to_step: int | None = Field(None, ge=0, lt=1 << 62)
    max_steps: int = Field(1000, ge=1, le=MAX_STEPS, description="Maximum number of steps; the newest ones are used.")


class ShareOut(BaseModel):
    """A number of sequences, and the fraction of them that is rejected."""

    n_sequences: int
    mask_rate: Number

    @classmethod
    def of(cls, share: RejectedShare) -> Self:
        """Return the response for a share."""
        return cls(n_sequences=share.n, mask_rate=share.mask_rate)


class QuarterOut(ShareOut):
    """A quartile of the sequences by length."""

    shortest: int = Field(description="Length in tokens, to three digits.")
    longest: int

    @classmethod
    def of_quarter(cls, quarter: LengthQuartile) -> Self:
        """Return the response for a quartile."""
        share = quarter.share
        return cls(shortest=quarter.shortest, longest=quarter.longest, n_sequences=share.n, mask_rate=share.mask_rate)


class TurnShareOut(BaseModel):
    """A number of turns with valid tokens, and the fraction of them that turn criteria would reject."""

    n_turns: int
    mask_rate: Number


class TokenShareOut(BaseModel):
    """A number of valid tokens, and the fraction of them that a token rule would mask or down-weight."""

    n_tokens: int
    at_least: Number
    estimate: Number = Field(description="Assumes that tokens are spread evenly within the histogram's bins.")
    at_most: Number

    @classmethod
    def of(cls, share: MaskedTokenShare) -> Self:
        """Return the response for a share."""
        return cls(
            n_tokens=int(share.n),
            at_least=share.of(share.at_least),
            estimate=share.of(share.estimate),
            at_most=share.of(share.at_most),
        )


class WeightsOut(BaseModel):
    """The weights of the sequences in the loss under a soft policy; of weights 0 and 1 both are the accepted share."""

    mean: Number
    effective_share: Number = Field(description="(sum w)^2/(N sum w^2).")

    @classmethod
    def of(cls, weights: WeightTotal) -> Self:
        """Return the response for weights."""
        return cls(mean=weights.mean, effective_share=weights.effective_share)


class RangeOut(BaseModel):
    """The steps that the result covers; reports are deleted after their retention, batches are not."""

    first_step: int | None
    last_step: int | None
    n_steps: int
    n_steps_without_reports: int = Field(
        description="The number of requested steps whose sequences are no longer stored."
    )


class WhatIfOut(BaseModel):
    """What a policy would have masked, and what was masked at the time."""

    policy: str
    hash: str
    range: RangeOut
    total: ShareOut = Field(description="Under a soft policy, the sequences beyond the bounds.")
    weights: WeightsOut | None = Field(description="Of a soft policy; null for a hard one.")
    then: ShareOut = Field(description="The decisions made during training.")
    reasons: dict[str, int]
    by_length: list[QuarterOut]
    positive_advantage: ShareOut
    negative_advantage: ShareOut
    turns: TurnShareOut | None = Field(description="The effect of the policy's turn criteria; null without any.")
    tokens: dict[str, TokenShareOut] = Field(description="The effect of each of the policy's token rules.")
    undecided: dict[str, int] = Field(
        description="The number of reports without the columns that the policy needs, by what they lack."
    )

    @classmethod
    def of(cls, effect: WhatIfEffect, *, covered: CoveredRange) -> Self:
        """Return the response for an effect. Args: covered: the steps that it covers."""
        turns = effect.turns
        return cls(
            policy=effect.policy.name,
            hash=effect.policy.hash,
            range=RangeOut(
                first_step=covered.first_step,
                last_step=covered.last_step,
                n_steps=covered.n_steps,
                n_steps_without_reports=covered.n_missing,
            ),
            total=ShareOut.of(effect.total),
            weights=None if effect.weights is None else WeightsOut.of(effect.weights),
            then=ShareOut.of(effect.original),
            reasons=dict(effect.reasons),
            by_length=[QuarterOut.of_quarter(quarter) for quarter in effect.quarters()],
            positive_advantage=ShareOut.of(effect.positive),
            negative_advantage=ShareOut.of(effect.negative),
            turns=TurnShareOut(n_turns=turns.n, mask_rate=turns.mask_rate) if effect.policy.turns else None,
            tokens={rule: TokenShareOut.of(share) for rule, share in effect.tokens.items()},
            undecided=dict(effect.undecided),
        )


router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"])


PAGE_STEPS = 1000


@router.post("/whatif")
async def ask_what_if(key: Named, question: Question, access: Reader, service: Service) -> WhatIfOut:
    """Return what a policy would have masked over stored steps, using the gauge row of each step."""
    # Millions of sequences take minutes: what-ifs must not occupy all threads that serve other requests.
    async with service.what_ifs:
        return await run_in_threadpool(_compute, service, key, question, access=access)


def _compute(service: Components, key: RunKey, question: Question, *, access: Access) -> WhatIfOut:
    run = service.store.runs.get(key, access=access)
    effect, covered = WhatIfEffect(parse_policy(question.policy, field="policy")), CoveredRange()
    for batch in _keys(service, run.id, question, access=access):
        covered.add(batch.step, stored=_add_batch(service, effect, batch))
    return WhatIfOut.of(effect, covered=covered)


def _keys(service: Components, run_id: int, question: Question, *, access: Access) -> Iterator[BatchKey]:
    """Yield the keys of the gauge rows, newest first, one page in memory at a time."""
    before, remaining = None, question.max_steps
    while remaining:
        page = service.store.batches.gauge_keys(
            run_id,
            access=access,
            attempt_id=question.attempt_id,
            from_step=question.from_step,
            to_step=question.to_step,
            before=before,
            limit=min(remaining, PAGE_STEPS),
        )
        yield from page
        if len(page) < PAGE_STEPS:
            return
        before, remaining = page[-1], remaining - len(page)


def _add_batch(service: Components, effect: WhatIfEffect, key: BatchKey) -> bool:
    """Add a batch report by report; return False if all its reports were pruned or are damaged."""
    reports, _ = decode_reports(service.store.reports.of_batch(key))
    for report in reports:
        columns: Columns = report.columns()
        effect.add(columns, accepted=unpack_bits(report.accepted, columns.n_sequences))
    return bool(reports)
