"""Routes of signals: the catalogue, and the series of a run."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from trmon.api.http.components import Service
from trmon.api.http.dependencies import Reader, require_reader
from trmon.api.http.name_lists import Names, split_names
from trmon.api.runs.routes import Named
from trmon.api.runs.step_selection import FromStep, OfAttempt, ToStep
from trmon.api.signals.formats import FORMATS, STATISTICS, SeriesDetail
from trmon.api.signals.schemas import SeriesOut, SignalOut
from trmon.domain.model.errors import InvalidInput
from trmon_client.core.signals.batch_signals import SIGNALS

router = APIRouter(prefix="/api/v1", tags=["signals"])

MAX_POINTS = 10_000


@router.get("/signals", dependencies=[Depends(require_reader)])
async def list_signals() -> list[SignalOut]:
    """List all signals with their unit, meaning, formula and healthy range."""
    return [SignalOut.of(spec) for spec in SIGNALS.values()]


@router.get("/runs/{project}/{run}/signals/names")
def list_names(key: Named, access: Reader, service: Service) -> list[str]:
    """List the signals and scalars of a run."""
    return service.store.signals.names(service.store.runs.get(key, access=access).id, access=access)


@router.get("/runs/{project}/{run}/signals", response_model=SeriesOut)
def get_series(
    key: Named,
    access: Reader,
    service: Service,
    names: Names = None,
    from_step: FromStep = None,
    to_step: ToStep = None,
    attempt_id: OfAttempt = None,
    points: Annotated[
        int, Query(ge=1, le=MAX_POINTS, description="Maximum number of points; each may aggregate many steps.")
    ] = 1000,
    updates: Annotated[Literal["gauge", "all"], Query(description="One row per step, or every update.")] = "gauge",
    statistics: Annotated[
        str | None,
        Query(max_length=64, description="Any of min, max, mean and last, separated by commas; all by default."),
    ] = None,
    digits: Annotated[int | None, Query(ge=1, le=17, description="Significant digits; all by default.")] = None,
    form: Annotated[Literal["json", "csv", "parquet", "arrow"], Query(alias="format")] = "json",
) -> Response:
    """Return signals of a run by step; points that aggregate steps have their minimum, maximum, mean and last value."""
    wanted = split_names(names)
    if not wanted:
        raise InvalidInput("names", "is required: comma-separated signals of /signals/names")
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
    return FORMATS[form](series, SeriesDetail(statistics=_statistics(statistics), digits=digits))


def _statistics(wanted: str | None) -> tuple[str, ...]:
    chosen = tuple(split_names(wanted)) or STATISTICS
    if not set(chosen) <= set(STATISTICS):
        raise InvalidInput("statistics", f"must be any of {', '.join(STATISTICS)}, not {wanted!r:.64}")
    return chosen
