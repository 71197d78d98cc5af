"""Route of the reasons for rejection over a run's steps."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.api.decisions.schemas import ReasonsOut
from trmon.api.http.components import Service
from trmon.api.http.dependencies import Reader
from trmon.api.runs.step_selection import SelectedSteps

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"])


@router.get("/reasons")
def list_reasons(access: Reader, service: Service, selected: SelectedSteps) -> ReasonsOut:
    """Return the fraction of each step's sequences that the active policy rejected, by reason."""
    found = service.store.batches.returned_decisions(selected.batches, access=access)
    return ReasonsOut.of([found[key] for key in selected.batches if key in found])
