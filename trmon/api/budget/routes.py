"""Route of a run's budget: mismatch, lag, split of the drift, and advice by pipeline."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.api.budget.schemas import BudgetOut
from trmon.api.http.components import Service
from trmon.api.http.dependencies import Reader
from trmon.api.runs.routes import Named
from trmon.domain.budget.run_budget import BUDGET_SIGNALS, run_budget
from trmon.views.recent_history import history_of, newest_steps, steps_per_rollout

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["diagnosis"])


@router.get("/budget")
def get_budget(key: Named, access: Reader, service: Service) -> BudgetOut:
    """Return what a run's mismatch and lag leave room for, and the advice for its pipeline; 404 before a batch."""
    run = service.store.runs.get(key, access=access)
    rows = newest_steps(service.store, run, access=access, extra=BUDGET_SIGNALS)
    policy = service.store.policies.current(run.id, access=access).policy
    found = run_budget(history_of(rows), config=run.config, policy=policy, updates_per_step=steps_per_rollout(rows))
    return BudgetOut.of(found)
