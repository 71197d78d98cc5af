"""The budget of a run."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader
from trmon.api.http.components import Service
from trmon.api.http.parameters import Named
from trmon.domain.budget.run_budget import BUDGET_SIGNALS, run_budget
from trmon.fleet.summaries import history_of, newest_steps, steps_per_rollout
from trmon_client.api.budget import BudgetInfo

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["diagnosis"], route_class=AnswerRoute)


@router.get("/budget")
def get_budget(key: Named, access: Reader, service: Service) -> BudgetInfo:
    """Return what a run's mismatch and lag leave room for, and the advice for it; 404 before a batch."""
    run = service.store.runs.get(key, access=access)
    rows = newest_steps(service.store, run, access=access, extra=BUDGET_SIGNALS)
    policy = service.store.policies.current(run.id, access=access).policy
    found = run_budget(history_of(rows), config=run.config, policy=policy, updates_per_step=steps_per_rollout(rows))
    view = service.view_cache.get(run.id)
    return BudgetInfo.from_fields(found, advice=None if view is None else view.advice)
