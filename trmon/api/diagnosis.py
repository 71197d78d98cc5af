"""Routes of a run's diagnosis and of its budget of mismatch and lag."""

from __future__ import annotations

import time

from fastapi import APIRouter

from trmon.api.diagnosis_answer import diagnosis_info
from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader
from trmon.api.http.components import Components, Service
from trmon.api.http.parameters import Named
from trmon.domain.access import Access
from trmon.domain.budget.run_budget import BUDGET_SIGNALS, run_budget
from trmon.domain.errors import NotFound
from trmon.domain.health.verdict import known_judgement
from trmon.domain.runs.run import Run
from trmon.fleet.summaries import history_of, newest_steps, steps_per_rollout
from trmon_client.api.budget import BudgetInfo
from trmon_client.api.diagnosis import DiagnosisInfo

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["diagnosis"], route_class=AnswerRoute)


@router.get("/diagnosis")
def get_diagnosis(key: Named, access: Reader, service: Service) -> DiagnosisInfo:
    """Return what the judge says of a run, since when, and what to change; 404 before its first batch."""
    return run_diagnosis(service, service.store.runs.get(key, access=access), access=access)


def run_diagnosis(service: Components, run: Run, *, access: Access) -> DiagnosisInfo:
    """Return the diagnosis of a run. Errors: NotFound before its first batch."""
    judgement = known_judgement(run, service.store.run_snapshots.judgements([run.id]).get(run.id))
    if judgement is None:
        raise NotFound("closed step yet of", str(run.key))
    firing = [listed.alert for listed in service.store.alerts.firing([run.id], access=access)[run.id]]
    of_signals = {rule.name for rule in service.rules().rules if rule.is_finding or rule.reads_batches}
    summary = service.summaries.of([run], access=access, now=time.time()).get(run.id)
    return diagnosis_info(
        run,
        judgement,
        circumstances=[alert for alert in firing if not alert.is_incident and alert.rule not in of_signals],
        incident=service.store.alerts.newest_incidents([run.id], access=access).get(run.id),
        risk=None if summary is None else summary.collapse_risk,
    )


@router.get("/budget")
def get_budget(key: Named, access: Reader, service: Service) -> BudgetInfo:
    """Return what a run's mismatch and lag leave room for, and the advice for it; 404 before a batch."""
    run = service.store.runs.get(key, access=access)
    rows = newest_steps(service.store, run, access=access, names=BUDGET_SIGNALS)
    policy = service.store.policies.current(run.id, access=access).policy
    found = run_budget(
        history_of(rows),
        config=run.config,
        policy=policy,
        updates_per_step=steps_per_rollout(rows),
        judgement=service.store.run_snapshots.judgements([run.id]).get(run.id),
    )
    view = service.view_cache.get(run.id)
    return BudgetInfo.from_fields(found, advice=None if view is None else view.advice)
