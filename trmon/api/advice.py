"""The advice to a run's trainer."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.api.http.answers import AnswerRoute
from trmon.api.http.auth import Reader
from trmon.api.http.components import Service
from trmon.api.http.parameters import Named
from trmon.domain.budget.trainer_advice import Advice
from trmon.domain.errors import NotFound
from trmon_client.api.budget import AdviceInfo

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["diagnosis"], route_class=AnswerRoute)


@router.get("/advice")
def get_advice(key: Named, access: Reader, service: Service) -> AdviceInfo:
    """Return the advice to the trainer; 404 until a step of the run closes after the service started."""
    run = service.store.runs.get(key, access=access)
    view = service.view_cache.get(run.id)
    if view is None or view.advice is None:
        raise NotFound("advice of the run", str(key))
    return _advice_info(view.advice)


def _advice_info(advice: Advice) -> AdviceInfo:
    """Return the response for an advice."""
    return AdviceInfo.from_fields(**advice.document())
