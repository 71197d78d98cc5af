"""Route of a run's advice, which its trainer receives with acknowledgements."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.api.advice.schemas import AdviceOut
from trmon.api.http.components import Service
from trmon.api.http.dependencies import Reader
from trmon.api.runs.routes import Named
from trmon.domain.model.errors import NotFound

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["diagnosis"])


@router.get("/advice")
def get_advice(key: Named, access: Reader, service: Service) -> AdviceOut:
    """Return the advice to the trainer; 404 until a step of the run closes after the service started."""
    run = service.store.runs.get(key, access=access)
    view = service.view_cache.get(run.id)
    if view is None or view.advice is None:
        raise NotFound("advice of the run", str(key))
    return AdviceOut.of(view.advice)
