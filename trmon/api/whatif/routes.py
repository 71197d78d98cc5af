"""Route of what-if: applies any policy to a run's stored sequences, one batch in memory at a time."""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool

from trmon.api.http.components import Components, Service
from trmon.api.http.dependencies import Reader
from trmon.api.policies.schemas import parse_policy
from trmon.api.runs.routes import Named
from trmon.api.whatif.schemas import Question, WhatIfOut
from trmon.domain.analysis.whatif import CoveredRange, WhatIfEffect
from trmon.domain.model.access import Access
from trmon.domain.model.identity import BatchKey, RunKey
from trmon.domain.model.messages import decode_reports
from trmon_client.core.columns.columns import Columns
from trmon_client.core.wire import unpack_bits

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
