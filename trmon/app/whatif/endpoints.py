"""What if: any policy over the stored sequences of a run, one batch in memory at a time."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.app.callers import Reader
from trmon.app.parts import Parts, Service
from trmon.app.policies.schemas import parsed
from trmon.app.runs.endpoints import Named
from trmon.app.whatif.schemas import Question, WhatIfOut
from trmon.domain.identity import BatchKey
from trmon.domain.whatif import Effect
from trmon_client.core.columns import Columns
from trmon_client.core.wire import unpack_bits

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"])


@router.post("/whatif")
def ask_what_if(key: Named, question: Question, access: Reader, service: Service) -> WhatIfOut:
    """Return what a policy would have masked over stored steps, of each the row that gauges read."""
    run = service.store.runs.get(key, access=access)
    effect = Effect(parsed(question.policy, field="policy"))
    keys = service.store.batches.gauge_keys(
        run.id,
        access=access,
        attempt_id=question.attempt_id,
        from_step=question.from_step,
        to_step=question.to_step,
        limit=question.max_steps,
    )
    found = [batch for batch in keys if _added(service, effect, batch)]
    return WhatIfOut.of(effect, found=found, missing=len(keys) - len(found))


def _added(service: Parts, effect: Effect, key: BatchKey) -> bool:
    """Take a batch in, report by report, as it was decided; false where its reports were pruned."""
    reports = service.store.runlog.batch_reports(key)
    for report in reports:
        columns: Columns = report.columns()
        effect.add(columns, accepted=unpack_bits(report.accepted, columns.n_sequences))
    return bool(reports)
