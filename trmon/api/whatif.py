"""Route of what-ifs: the mask of another policy over a run's stored sequences."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from pydantic import Field

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import Named, RequestBody
from trmon.api.policies import Spec, parse_policy
from trmon.domain.access import Access
from trmon.domain.analysis.whatif import (
    CoveredRange,
    MaskedTokenShare,
    RejectedShare,
    WhatIfEffect,
)
from trmon.domain.identity import BatchKey, RunKey
from trmon.domain.messages import decode_reports
from trmon_client.api.policies import (
    QuarterInfo,
    RangeInfo,
    ShareInfo,
    TokenShareInfo,
    TurnShareInfo,
    WhatIfInfo,
)
from trmon_client.core.columns import Columns
from trmon_client.core.wire import unpack_bits

MAX_STEPS = 1_000_000


class Question(RequestBody):
    """A policy to try, and the steps to try it on; by default the newest 1,000 of the run."""

    policy: Spec = Field(examples=["geo_mask"])
    attempt_id: int | None = Field(None, ge=0, lt=1 << 62, description="Only this attempt, by its id.")
    from_step: int | None = Field(None, ge=0, lt=1 << 62)
    to_step: int | None = Field(None, ge=0, lt=1 << 62)
    max_steps: int = Field(1000, ge=1, le=MAX_STEPS, description="Maximum number of steps; the newest ones are used.")


router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"], route_class=AnswerRoute)


PAGE_STEPS = 1000


@router.post("/whatif")
async def ask_what_if(key: Named, question: Question, access: Reader, service: Service) -> WhatIfInfo:
    """Return what a policy would have masked over stored steps, using the gauge row of each step."""
    # Millions of sequences take minutes: what-ifs must not occupy all threads that serve other requests.
    async with service.what_ifs:
        return await run_in_threadpool(_compute, service, key, question, access=access)


def _compute(service: Components, key: RunKey, question: Question, *, access: Access) -> WhatIfInfo:
    run = service.store.runs.get(key, access=access)
    effect, covered = WhatIfEffect(parse_policy(question.policy, field="policy")), CoveredRange()
    for batch in _keys(service, run.id, question, access=access):
        covered.add(batch.step, stored=_add_batch(service, effect, batch))
    return what_if_info(effect, covered=covered)


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


def _share_info(share: RejectedShare) -> ShareInfo:
    return ShareInfo.from_fields(share, n_sequences=share.n)


def _token_share_info(share: MaskedTokenShare) -> TokenShareInfo:
    return TokenShareInfo.from_fields(
        n_tokens=int(share.n),
        at_least=share.of(share.at_least),
        estimate=share.of(share.estimate),
        at_most=share.of(share.at_most),
    )


def what_if_info(effect: WhatIfEffect, *, covered: CoveredRange) -> WhatIfInfo:
    """Return the response for an effect. Args: covered: the steps that it covers."""
    turns = effect.turns
    return WhatIfInfo.from_fields(
        policy=effect.policy.name,
        hash=effect.policy.hash,
        range=RangeInfo.from_fields(covered, n_steps_without_reports=covered.n_missing),
        total=_share_info(effect.total),
        weights=effect.weights,
        then=_share_info(effect.original),
        reasons=dict(effect.reasons),
        by_length=[
            QuarterInfo.from_fields(quarter, n_sequences=quarter.share.n, mask_rate=quarter.share.mask_rate)
            for quarter in effect.quarters()
        ],
        positive_advantage=_share_info(effect.positive),
        negative_advantage=_share_info(effect.negative),
        turns=TurnShareInfo.from_fields(turns, n_turns=turns.n) if effect.policy.turns else None,
        tokens={rule: _token_share_info(share) for rule, share in effect.tokens.items()},
        undecided=dict(effect.undecided),
    )
