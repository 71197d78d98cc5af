"""Why sequences of a run were rejected, over its steps."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.api.decisions.schemas import ReasonsOut
from trmon.api.http.components import Service
from trmon.api.http.dependencies import Reader
from trmon.api.runs.step_selection import Chosen

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"])


@router.get("/reasons")
def list_reasons(access: Reader, service: Service, chosen: Chosen) -> ReasonsOut:
    """Return which share of a step's sequences the active policy rejected for which reason."""
    found = service.store.batches.returned_decisions(chosen.batches, access=access)
    return ReasonsOut.of([found[key] for key in chosen.batches if key in found])
