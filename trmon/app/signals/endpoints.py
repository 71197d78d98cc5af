"""Signals: what there is, and how those of a run went."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from trmon.app.callers import Reader, reader
from trmon.app.names import Names, split
from trmon.app.parts import Service
from trmon.app.runs.endpoints import Named
from trmon.app.signals.formats import FORMATS
from trmon.app.signals.schemas import SeriesOut, SignalOut
from trmon.domain.errors import InvalidInput
from trmon_client.core.signals import SIGNALS

router = APIRouter(prefix="/api/v1", tags=["signals"])

MAX_POINTS = 10_000


@router.get("/signals", dependencies=[Depends(reader)])
async def list_signals() -> list[SignalOut]:
    """List every signal that trmon computes: its unit, meaning, formula and healthy range."""
    return [SignalOut.of(spec) for spec in SIGNALS.values()]


@router.get("/runs/{project}/{run}/signals/names")
def list_names(key: Named, access: Reader, service: Service) -> list[str]:
    """List the signals and scalars that a run has."""
    return service.store.signals.names(service.store.runs.get(key, access=access).id, access=access)


@router.get("/runs/{project}/{run}/signals", response_model=SeriesOut)
def get_series(
    key: Named,
    access: Reader,
    service: Service,
    names: Names = None,
    from_step: Annotated[int | None, Query(alias="from", ge=0, lt=1 << 62)] = None,
    to_step: Annotated[int | None, Query(alias="to", ge=0, lt=1 << 62)] = None,
    attempt_id: Annotated[int | None, Query(description="Only this attempt, by its id.")] = None,
    points: Annotated[
        int, Query(ge=1, le=MAX_POINTS, description="Most points; each may stand for many steps.")
    ] = 1000,
    updates: Annotated[Literal["gauge", "all"], Query(description="One row a step, or every update.")] = "gauge",
    form: Annotated[Literal["json", "csv"], Query(alias="format")] = "json",
) -> Response:
    """Return signals of a run by step; where points stand for many steps, their least, largest, mean and last value."""
    wanted = split(names)
    if not wanted:
        raise InvalidInput("names", "is required: signals separated by commas, of /signals/names")
    run = service.store.runs.get(key, access=access)
    series = service.store.signals.series(
        run.id,
        names=wanted,
        access=access,
        attempt_id=attempt_id,
        from_step=from_step,
        to_step=to_step,
        points=points,
        updates=updates,
    )
    return FORMATS[form](series)
