"""Why sequences of a run were rejected, over its steps."""

from __future__ import annotations

from fastapi import APIRouter

from trmon.app.decisions.schemas import ReasonsOut
from trmon.app.http.callers import Reader
from trmon.app.parts import Service
from trmon.app.signals.choice import Chosen

router = APIRouter(prefix="/api/v1/runs/{project}/{run}", tags=["policies"])


@router.get("/reasons")
def list_reasons(access: Reader, service: Service, chosen: Chosen) -> ReasonsOut:
    """Return which share of a step's sequences the active policy rejected for which reason."""
    found = service.store.batches.returned(chosen.batches, access=access)
    return ReasonsOut.of([found[key] for key in chosen.batches if key in found])
