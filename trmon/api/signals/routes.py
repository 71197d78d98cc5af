"""Routes of signals: the catalogue, and the series of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from trmon.api.http.components import Components, Service
from trmon.api.http.dependencies import Reader, require_reader
from trmon.api.http.name_lists import Names, check_known, split_names
from trmon.api.runs.routes import Named
from trmon.api.runs.step_selection import FromStep, OfAttempt, ToStep
from trmon.api.signals.formats import FORMATS, MEDIA_TYPES, STATISTICS, SeriesDetail
from trmon.api.signals.schemas import SeriesOut, SignalOut
from trmon.domain.model.access import Access
from trmon.domain.model.errors import InvalidInput
from trmon.domain.rules.signal_names import series_names
from trmon.domain.signals.derived_signals import SHADOW_PREFIX
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


@router.get(
    "/runs/{project}/{run}/signals",
    response_model=SeriesOut,
    responses={200: {"content": {media_type: {} for media_type in MEDIA_TYPES.values()}}},
)
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
    _check_signals(wanted, service=service, run_id=run.id, access=access)
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


def _check_signals(names: Sequence[str], *, service: Components, run_id: int, access: Access) -> None:
    """Raise InvalidInput for a name that is neither in the catalogue nor anywhere in the run's history."""
    if unusual := set(names) - series_names():
        shadows = {f"{SHADOW_PREFIX}{shadow.name}" for shadow in service.store.policies.current(run_id).shadows}
        known = series_names() | shadows | set(service.store.signals.names(run_id, access=access))
        known |= service.store.signals.recorded_names(run_id, unusual - known, access=access)
        check_known(names, known, kind="signal", listed_by="GET /api/v1/signals and /signals/names of the run")


def _statistics(wanted: str | None) -> tuple[str, ...]:
    chosen = tuple(split_names(wanted)) or STATISTICS
    if not set(chosen) <= set(STATISTICS):
        raise InvalidInput("statistics", f"must be any of {', '.join(STATISTICS)}, not {wanted!r:.64}")
    return chosen
