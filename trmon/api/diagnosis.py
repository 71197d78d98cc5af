"""Routes of a run's diagnosis and of its budget of mismatch and lag."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.api.diagnosis_answer import diagnosis_info, newest_incident_info
from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader
from trmon.api.http.components import Service
from trmon.api.http.parameters import Named
from trmon.domain.budget.run_budget import BUDGET_SIGNALS, run_budget
from trmon.domain.diagnosis.diagnosis import diagnose
from trmon.domain.diagnosis.framework_options import with_sent_options
from trmon.domain.health.verdict import standing_incident
from trmon.domain.incidents.incident import Incident, led_diagnosis
from trmon.domain.runs.run import RunState
from trmon.fleet.summaries import history_of, newest_steps, recent_rows, steps_per_rollout
from trmon_client.api.budget import BudgetInfo
from trmon_client.api.diagnosis import DiagnosisInfo

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["diagnosis"], route_class=AnswerRoute)


@router.get("/diagnosis")
def get_diagnosis(key: Named, access: Reader, service: Service) -> DiagnosisInfo:
    """Return what is wrong at a run's newest step, since when, and what to change; 404 before its first batch."""
    run = service.store.runs.get(key, access=access)
    history = recent_rows(service.store, run, access=access)
    found = diagnose(history)
    rules = {rule.name: rule for rule in service.rules()}
    firing = [listed.alert for listed in service.store.alerts.firing([run.id], access=access)[run.id]]
    newest = service.store.alerts.newest_incidents([run.id], access=access).get(run.id)
    standing = standing_incident(run, None if newest is None else Incident(alert=newest.alert))
    if standing is not None:
        found = led_diagnosis(found, standing, firing=firing, rules=rules)
    of_batches = {rule.name for rule in rules.values() if rule.reads_batches}
    is_of_run = [alert for alert in firing if not alert.is_incident and alert.rule not in of_batches]
    return diagnosis_info(
        found,
        circumstances=is_of_run,
        config=with_sent_options(run.config, history),
        last_good_step=None if standing is None or standing.is_prediction else standing.last_good_step,
        standing=standing,
        incident=newest_incident_info(newest),
        is_finished=run.state is RunState.FINISHED,
        has_ended=run.state.ended,
    )


@router.get("/budget")
def get_budget(key: Named, access: Reader, service: Service) -> BudgetInfo:
    """Return what a run's mismatch and lag leave room for, and the advice for it; 404 before a batch."""
    run = service.store.runs.get(key, access=access)
    rows = newest_steps(service.store, run, access=access, extra=BUDGET_SIGNALS)
    policy = service.store.policies.current(run.id, access=access).policy
    found = run_budget(history_of(rows), config=run.config, policy=policy, updates_per_step=steps_per_rollout(rows))
    view = service.view_cache.get(run.id)
    return BudgetInfo.from_fields(found, advice=None if view is None else view.advice)
